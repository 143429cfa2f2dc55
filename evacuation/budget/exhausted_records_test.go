package budget

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

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
