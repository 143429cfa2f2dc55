package budget

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// pdbName is the PodDisruptionBudget that can never let a pod of the ring go.
const pdbName = "ring"

// exhausted is a world with two pods, whose EvictionBudget would let both go and consents that
// they are deleted after a minute.
func exhausted(t *testing.T, change func(*builder.EvictionBudgetWrapper)) (w *world, first, second *corev1.Pod) {
	t.Helper()
	b := oneZone().Exhausted(time.Minute)
	if change != nil {
		change(b)
	}
	w = newWorld(t, []string{"a"}, b)
	pdb := builder.Budget(shop, pdbName).Selects("app", "ring").MaxUnavailable("0").Obj()
	if err := w.client.Create(t.Context(), pdb); err != nil {
		t.Fatal(err)
	}
	w.counts(2)
	return w, w.pod("a", 0, ""), w.pod("a", 1, "")
}

// counts is what the disruption controller writes when it sees so many pods, all healthy.
func (w *world) counts(n int32) {
	w.t.Helper()
	pdb := &policyv1.PodDisruptionBudget{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: shop, Name: pdbName}, pdb); err != nil {
		w.t.Fatal(err)
	}
	pdb.Status.ExpectedPods, pdb.Status.CurrentHealthy, pdb.Status.DesiredHealthy = n, n, n
	if err := w.client.Status().Update(w.t.Context(), pdb); err != nil {
		w.t.Fatal(err)
	}
}

// exhausting is a manager that may delete pods, and has granted the evictions of these.
func (w *world) exhausting(pods ...*corev1.Pod) *runner {
	w.t.Helper()
	r := w.born()
	r.deletes = true
	for _, pod := range pods {
		if p, err := w.turn(r, pod); err != nil || !p.Done {
			w.t.Fatalf("pod %s: %+v, %v", pod.Name, p, err)
		}
	}
	return r
}

// consent asks for a pod that has been refused for two minutes. It has to be deleted while
// nothing else can be decided, and only if that is said.
func (w *world) consent(r *runner, pod *corev1.Pod) (disruption.Consent, error) {
	w.t.Helper()
	removed := 0
	remove := func() {
		removed++
		if deciding := &r.state.space(shop).deciding; deciding.TryLock() {
			deciding.Unlock()
			w.t.Errorf("pod %s is deleted while others can be let go", pod.Name)
		}
	}
	er := builder.EvictionRequest(shop, pod.Name, pod.UID).UID("er-" + pod.UID).Obj()
	c, err := (&Exhausted{r}).Consent(w.t.Context(), er, pod, pdbName, w.clock.Now().Add(-2*time.Minute), remove)
	if want := map[bool]int{true: 1}[c.Deletes]; removed != want {
		w.t.Errorf("pod %s was deleted %d times, want %d: %+v", pod.Name, removed, want, c)
	}
	return c, err
}

// marked are the pods whose records say that they go in spite of the budget.
func (w *world) marked() (names []string) {
	for _, g := range w.budget("zones").Status.Grants {
		if g.DisruptionBudget == pdbName {
			names = append(names, g.Pod)
		}
	}
	slices.Sort(names)
	return names
}

func (w *world) wantMarked(what string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.marked()); diff != "" {
		w.t.Errorf("%s, marked (-want +got):\n%s", what, diff)
	}
}

// Two leaders, one of which has not noticed that it is none any more, are asked about two pods of
// one budget. One goes, and the other not before the place of the first is filled again.
func TestTwoPodsOfOneBudgetGoOneAfterTheOther(t *testing.T) {
	w, first, second := exhausted(t, nil)
	old, leader := w.exhausting(first, second), w.exhausting()
	c, err := w.consent(old, first)
	if err != nil || !c.Deletes || len(c.Budgets) != 1 || c.Budgets[0].Name != "zones" || c.Budgets[0].UID != "budget-zones" {
		t.Fatalf("the first: %+v, %v", c, err)
	}
	w.wantMarked("at first", first.Name)
	refused := func(what string) {
		t.Helper()
		for name, r := range map[string]*runner{"the former leader": old, "the leader": leader} {
			if c, err := w.consent(r, second); err != nil || c.Deletes || !c.Waits {
				t.Errorf("%s, %s: %+v, %v", what, name, c, err)
			}
		}
		w.wantMarked(what, first.Name)
	}
	refused("while the first is there")
	w.evict(first)
	refused("when it is gone, which nobody has seen")
	w.see(old)
	w.see(leader)
	w.counts(1) // As for pods of two StatefulSets: that without a pod is not counted.
	refused("when it is gone, and counted no more")
	w.replace("a", 0)
	w.see(leader)
	w.counts(2)
	w.decide(leader)
	if c, err := w.consent(leader, second); err != nil || !c.Deletes {
		t.Errorf("when its place is filled: %+v, %v", c, err)
	}
	w.wantMarked("in the end", second.Name)
}

// The next pod waits for the record of the last, so that goes as soon as it may, although nobody
// waits for a grant.
func TestAFilledPlaceIsOnRecordAtOnce(t *testing.T) {
	w, first, second := exhausted(t, nil)
	r := w.exhausting(first, second)
	if c, err := w.consent(r, first); err != nil || !c.Deletes {
		t.Fatalf("%+v, %v", c, err)
	}
	w.evict(first)
	w.see(r)
	w.decide(r)
	w.wantMarked("when it is gone", first.Name)
	w.replace("a", 0)
	w.see(r)
	w.decide(r)
	w.wantMarked("as soon as its place is filled")
}

// The deletion may still be on its way, from another leader, when its request ends.
func TestARecordOutlastsTheDeletion(t *testing.T) {
	w, first, second := exhausted(t, nil)
	r := w.exhausting(first, second)
	if c, err := w.consent(r, first); err != nil || !c.Deletes {
		t.Fatalf("%+v, %v", c, err)
	}
	er := &v1alpha1.EvictionRequest{}
	er.Namespace, er.Name = shop, string(first.UID)
	if err := w.client.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	leader := w.exhausting()
	for _, who := range []*runner{r, leader} {
		who.state.removeRequest(shop, "er-"+first.UID, first.UID)
		w.decide(who)
		w.wantMarked("when its request has ended", first.Name)
		if c, err := w.consent(who, second); err != nil || c.Deletes || !c.Waits {
			t.Errorf("while the deletion may come: %+v, %v", c, err)
		}
		w.clock.Step(onItsWay - time.Second)
		w.decide(who)
		w.wantMarked("a second before the end", first.Name)
	}
	w.clock.Step(time.Second)
	w.decide(leader)
	w.wantMarked("a minute later")
	if c, err := w.consent(leader, second); err != nil || !c.Deletes {
		t.Errorf("when no deletion can come any more: %+v, %v", c, err)
	}
}

// A pod that is wanted again before that has its record already.
func TestARecordIsThatOfTheNextRequest(t *testing.T) {
	w, first, _ := exhausted(t, nil)
	r := w.exhausting(first)
	if c, err := w.consent(r, first); err != nil || !c.Deletes {
		t.Fatalf("%+v, %v", c, err)
	}
	er := &v1alpha1.EvictionRequest{}
	er.Namespace, er.Name = shop, string(first.UID)
	if err := w.client.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	r.state.removeRequest(shop, "er-"+first.UID, first.UID)
	r.state.putRequest(builder.EvictionRequest(shop, first.Name, first.UID).UID("er-again").Interceptors(v1alpha1.BudgetInterceptor).
		Processed(v1alpha1.BudgetInterceptor).Active(v1alpha1.ImperativeEvictionInterceptor, noon).Obj())
	w.clock.Step(idleEvery)
	w.decide(r)
	w.wantMarked("when it is wanted again", first.Name)
	grants := w.budget("zones").Status.Grants
	if !slices.ContainsFunc(grants, func(g v1alpha1.BudgetGrant) bool { return g.Pod == first.Name && g.Request == "er-again" }) {
		t.Errorf("records: %+v", grants)
	}
}

// Nobody but the record knows that a StatefulSet of one pod lacks it. So that lasts until a pod is
// ready in the place: somebody may delete the one that comes, and then another leader begins.
func TestARecordLastsUntilThePlaceIsReady(t *testing.T) {
	b := builder.EvictionBudget(shop, "zones", "app", "ring").MaxUnavailable("100%").Exhausted(time.Minute)
	w := newWorld(t, []string{"a", "b"}, b)
	if err := w.client.Create(t.Context(), builder.Budget(shop, pdbName).Selects("app", "ring").MaxUnavailable("0").Obj()); err != nil {
		t.Fatal(err)
	}
	for _, zone := range []string{"a", "b"} {
		w.scale(zone, 1)
		w.evict(w.pod(zone, 1, ""))
	}
	w.counts(2)
	first, second := w.pod("a", 0, ""), w.pod("b", 0, "")
	r := w.exhausting(first, second)
	if c, err := w.consent(r, first); err != nil || !c.Deletes {
		t.Fatalf("%+v, %v", c, err)
	}
	w.evict(first)
	w.see(r)
	w.decide(r)
	replacement := w.pod("a", 0, "-unready")
	replacement.Status.Conditions = nil
	if err := w.client.Create(t.Context(), replacement); err != nil {
		t.Fatal(err)
	}
	w.see(r)
	w.decide(r)
	w.wantMarked("when there is a pod that is not ready", first.Name)
	if err := w.client.Delete(t.Context(), replacement); err != nil {
		t.Fatal(err)
	}
	w.counts(1)
	leader := w.exhausting()
	w.decide(leader)
	if c, err := w.consent(leader, second); err != nil || c.Deletes || !c.Waits {
		t.Errorf("when that is gone: %+v, %v", c, err)
	}
	w.wantMarked("when that is gone", first.Name)
	w.replace("a", 0)
	w.counts(2)
	w.see(leader)
	w.decide(leader)
	w.wantMarked("when a pod is ready")
	if c, err := w.consent(leader, second); err != nil || !c.Deletes {
		t.Errorf("when a pod is ready: %+v, %v", c, err)
	}
}

// A manager that dies while it records leaves nothing behind by which two pods could go.
func TestARecordIsKeptWhoeverDies(t *testing.T) {
	for name, stored := range map[string]bool{"before it is stored": false, "after it is stored": true} {
		t.Run(name, func(t *testing.T) {
			w, first, second := exhausted(t, nil)
			r := w.exhausting(first, second)
			w.dieAt, w.stored = w.writes+1, stored
			if c, err := w.consent(r, first); err == nil || c.Deletes {
				t.Fatalf("it has not died: %+v, %v", c, err)
			}
			r = w.exhausting()
			var went []string
			for _, pod := range []*corev1.Pod{second, first} {
				if c, err := w.consent(r, pod); err != nil {
					t.Fatal(err)
				} else if c.Deletes {
					went = append(went, pod.Name)
				}
			}
			want := second.Name
			if stored {
				want = first.Name
			}
			if diff := cmp.Diff([]string{want}, went); diff != "" {
				t.Errorf("pods that may go (-want +got):\n%s", diff)
			}
			w.wantMarked("in the end", want)
		})
	}
}

// What is asked of the API server counts, not what a manager remembers.
func TestConsentIsThatOfNow(t *testing.T) {
	cases := map[string]struct {
		budget func(*builder.EvictionBudgetWrapper)
		change func(*world, *runner)
		fails  bool
		want   disruption.Consent
	}{
		"nothing has changed": {want: disruption.Consent{Deletes: true, By: "zones", Says: "The pod is deleted in spite of PodDisruptionBudget ring, as EvictionBudget zones says."}},
		"it is switched off": {
			change: func(_ *world, r *runner) { r.deletes = false },
			want:   disruption.Consent{By: "zones", Says: "EvictionBudget zones would have the pod deleted, but Drawbridge must not delete pods here (value budgets.exhausted of the chart)."},
		},
		"it says Wait": {budget: func(b *builder.EvictionBudgetWrapper) { b.Spec.Exhausted.Action = v1alpha1.ExhaustedWait }},
		"it has just said Wait, which the cache does not have": {
			change: func(w *world, _ *runner) {
				b := w.budget("zones")
				b.Spec.Exhausted.Action, b.Generation = v1alpha1.ExhaustedWait, 2
				if err := w.client.Update(w.t.Context(), b); err != nil {
					w.t.Fatal(err)
				}
			},
			fails: true,
		},
		"the other pod is not ready, which the cache does not have": {
			change: func(w *world, _ *runner) {
				pod := w.pod("a", 1, "")
				if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
					w.t.Fatal(err)
				}
				pod.Status.Conditions = nil
				if err := w.client.Status().Update(w.t.Context(), pod); err != nil {
					w.t.Fatal(err)
				}
			},
			want: disruption.Consent{Waits: true, By: "zones", Says: "EvictionBudget zones would have the pod deleted, but PodDisruptionBudget ring does not count as many healthy pods as it expects and asks for."},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, first, second := exhausted(t, tc.budget)
			r := w.exhausting(first, second)
			if tc.change != nil {
				tc.change(w, r)
			}
			got, err := w.consent(r, first)
			if (err != nil) != tc.fails {
				t.Fatal(err)
			}
			got.Budgets = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("consent (-want +got):\n%s", diff)
			}
			if marked := w.marked(); len(marked) > 0 != tc.want.Deletes {
				t.Errorf("marked: %v", marked)
			}
		})
	}
}

// No pod goes outside of the windows, also if one closes while it is recorded that a pod goes.
func TestConsentEndsWithTheWindow(t *testing.T) {
	for name, tc := range map[string]struct {
		passes, slow time.Duration
		want         disruption.Consent
	}{
		"it is open":                          {time.Minute, time.Second, disruption.Consent{Deletes: true, By: "zones", Says: "The pod is deleted in spite of PodDisruptionBudget ring, as EvictionBudget zones says."}},
		"it has closed":                       {time.Hour, 0, disruption.Consent{Waits: true, By: "zones", At: noon.Add(24 * time.Hour), Says: "EvictionBudget zones has the pod deleted from 2026-11-24T12:00:00Z on."}},
		"it closes while the pod is recorded": {time.Hour - time.Second, time.Second, disruption.Consent{Waits: true, By: "zones", At: noon.Add(24 * time.Hour), Says: "EvictionBudget zones has the pod deleted from 2026-11-24T12:00:00Z on."}},
	} {
		t.Run(name, func(t *testing.T) {
			w, first, _ := exhausted(t, func(b *builder.EvictionBudgetWrapper) { b.Window("0 12 * * *", time.Hour) })
			r := w.exhausting(first)
			w.clock.Step(tc.passes)
			w.slow = tc.slow
			got, err := w.consent(r, first)
			if err != nil {
				t.Fatal(err)
			}
			got.Budgets = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("consent (-want +got):\n%s", diff)
			}
		})
	}
}

// The status says whether such pods are deleted, if that is wanted.
func TestTheStatusSaysWhetherPodsAreDeleted(t *testing.T) {
	cases := map[string]struct {
		action  v1alpha1.ExhaustedAction
		deletes bool
		want    string
	}{
		"it waits":            {v1alpha1.ExhaustedWait, true, ""},
		"it evicts":           {v1alpha1.ExhaustedEvict, true, "True Evicts"},
		"and is switched off": {v1alpha1.ExhaustedEvict, false, "False SwitchedOff"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := oneZone().Exhausted(time.Minute).Obj()
			before := describe(&v1alpha1.EvictionBudgetStatus{}, compile(b), grant.State{}, nil, true, noon)
			b.Spec.Exhausted.Action = tc.action
			got := ""
			if c := meta.FindStatusCondition(describe(before, compile(b), grant.State{}, nil, tc.deletes, noon).Conditions, v1alpha1.ConditionExhausted); c != nil {
				got = string(c.Status) + " " + c.Reason
			}
			if got != tc.want {
				t.Errorf("condition: want %q, got %q", tc.want, got)
			}
		})
	}
}
