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
		if len(r.state.space(shop).deciding.taken) == 0 {
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
