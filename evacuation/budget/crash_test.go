package budget

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func oneZone() *builder.EvictionBudgetWrapper {
	return builder.EvictionBudget(shop, "zones", "app", "ring").ByPodLabel(zoneLabel, 1).MaxUnavailable("100%")
}

// A manager dies at each of its writes, before or after it is stored, while two zones are
// drained: pods of one zone at most are missing or on their way, and all go in the end. The
// same with a second budget for the same pods, which allows one pod at a time.
func TestAGrantIsGivenOnceWhoeverDiesWhen(t *testing.T) {
	scenarios := map[string]struct {
		budgets []*builder.EvictionBudgetWrapper
		// pods may be missing at a time.
		pods int
	}{
		"one budget": {[]*builder.EvictionBudgetWrapper{oneZone()}, 2},
		"two budgets": {[]*builder.EvictionBudgetWrapper{
			oneZone(), builder.EvictionBudget(shop, "pace", "app", "ring").MaxUnavailable("1"),
		}, 1},
	}
	for name, tc := range scenarios {
		t.Run(name, func(t *testing.T) {
			for _, stored := range []bool{false, true} {
				dies := 0
				for dieAt := 1; ; dieAt++ {
					w := newWorld(t, []string{"a", "b"}, tc.budgets...)
					w.dieAt, w.stored = dieAt, stored
					w.drain(tc.pods)
					if t.Failed() {
						t.Fatalf("died at write %d, stored %t", dieAt, stored)
					}
					if w.writes < dieAt {
						break
					}
					dies++
				}
				if dies < 2 {
					t.Errorf("it died at %d writes only", dies)
				}
			}
		})
	}
}

// drain plays until all pods of both zones are others. What is granted goes with some delay,
// so that managers die in between.
func (w *world) drain(most int) {
	w.t.Helper()
	r := w.born()
	type place struct {
		zone string
		i    int
	}
	left := map[place]*corev1.Pod{}
	for _, zone := range []string{"a", "b"} {
		for i := range 2 {
			left[place{zone, i}] = w.pod(zone, i, "")
		}
	}
	granted, missing := map[place]bool{}, map[place]bool{}
	for range 80 {
		if w.dead {
			r = w.born()
		}
		w.clock.Step(time.Minute) // Longer than the pause between two writes of a status.
		for at, pod := range left {
			if granted[at] {
				continue
			}
			if p, err := w.turn(r, pod); err == nil && p.Done {
				granted[at] = true
			}
			away := map[string]bool{}
			for at := range granted {
				away[at.zone] = true
			}
			for at := range missing {
				away[at.zone] = true
			}
			if len(away) > 1 || len(granted)+len(missing) > most {
				w.t.Errorf("granted %v, missing %v", granted, missing)
				return
			}
		}
		switch { // One thing happens at a time.
		case len(missing) > 0:
			for at := range missing {
				w.replace(at.zone, at.i)
				delete(missing, at)
				break
			}
		case len(granted) > 0:
			for at := range granted {
				w.evict(left[at])
				delete(left, at)
				delete(granted, at)
				missing[at] = true
				break
			}
		case len(left) == 0:
			return
		}
		w.see(r)
		w.decide(r)
	}
	w.t.Errorf("it does not end: left %d, granted %v, missing %v", len(left), granted, missing)
}

// Two managers believe that they lead: the second one to write finds out.
func TestTwoLeadersGrantOnce(t *testing.T) {
	w := newWorld(t, []string{"a", "b"}, oneZone())
	a, b := w.pod("a", 0, ""), w.pod("b", 0, "")
	one := w.born()
	clear(one.state.spaces[shop].requests) // Nobody asks it before the other one leads.
	w.decide(one)
	other := w.born()
	if p, err := w.turn(other, a); err != nil || !p.Done {
		t.Fatalf("zone a: %+v, %v", p, err)
	}
	if p, err := w.turn(one, b); err != nil || p.Done {
		t.Errorf("zone b, with what it knew before: %+v, %v", p, err)
	}
	p, err := w.turn(one, b)
	if err != nil || p.Done || !strings.Contains(p.Message, `group "a" is disrupted`) {
		t.Errorf("zone b: %+v, %v", p, err)
	}
}

// What was granted counts for the next leader as well, although its pod is gone and its
// zone not complete; and a scale-down makes it complete.
func TestTheNextLeaderKnowsWhatIsMissing(t *testing.T) {
	w := newWorld(t, []string{"a", "b"}, oneZone())
	r := w.born()
	a, b := w.pod("a", 0, ""), w.pod("b", 0, "")
	if p, err := w.turn(r, a); err != nil || !p.Done {
		t.Fatalf("zone a: %+v, %v", p, err)
	}
	a1 := w.pod("a", 1, "")
	if p, err := w.turn(r, a1); err != nil || !p.Done {
		t.Fatalf("zone a: %+v, %v", p, err)
	}
	w.evict(a)
	w.evict(a1)
	r = w.born()
	p, err := w.turn(r, b)
	if err != nil || p.Done || !strings.Contains(p.Message, `group "a" is disrupted`) {
		t.Fatalf("zone b: %+v, %v", p, err)
	}
	w.scale("a", 0)
	w.see(r)
	w.clock.Step(time.Hour)
	w.decide(r)
	if p, err = w.turn(r, b); err != nil || !p.Done {
		t.Errorf("zone b after zone a was given up: %+v, %v", p, err)
	}
	if got := w.budget("zones").Status.Grants; len(got) == 0 || got[len(got)-1].Group != "b" {
		t.Errorf("grants: %+v", got)
	}
}

// A request that is canceled gives its grant back if its pod stays. The cache may show a pod
// that was evicted already.
func TestAGrantIsGivenBackOnlyIfThePodStays(t *testing.T) {
	for name, tc := range map[string]struct{ stays, want bool }{"the pods stay": {true, true}, "the pods have gone": {false, false}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{"a", "b"}, oneZone())
			r := w.born()
			if p, err := w.turn(r, w.pod("a", 0, "")); err != nil || !p.Done {
				t.Fatalf("zone a: %+v, %v", p, err)
			}
			for i := range 2 { // Both were granted.
				a := w.pod("a", i, "")
				over := []client.Object{&v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: string(a.UID)}}}
				if !tc.stays {
					over = append(over, a) // Its informer says nothing of that.
				}
				for _, object := range over {
					if err := w.client.Delete(t.Context(), object); err != nil {
						t.Fatal(err)
					}
				}
				r.state.removeRequest(shop, "er-"+a.UID, a.UID)
			}
			w.clock.Step(time.Minute)
			w.decide(r)
			if p, err := w.turn(r, w.pod("b", 0, "")); err != nil || p.Done != tc.want {
				t.Errorf("zone b: %+v, %v", p, err)
			}
		})
	}
}

// Without a budget, or with one that does not cover the pod any more, the eviction goes on.
func TestWhatNoBudgetCoversGoesOn(t *testing.T) {
	w := newWorld(t, []string{"a"}, builder.EvictionBudget(shop, "others", "app", "another"))
	r := w.born()
	if p, err := w.turn(r, w.pod("a", 0, "")); err != nil || !p.Done || p.Message != "No EvictionBudget covers the pod." {
		t.Errorf("%+v, %v", p, err)
	}
}

// One whose record cannot be written grants nothing, and says so.
func TestWithoutARecordNothingIsGranted(t *testing.T) {
	w := newWorld(t, []string{"a"}, oneZone())
	r := w.born()
	w.dieAt = 1
	for range 2 {
		p, err := w.turn(r, w.pod("a", 0, ""))
		if err != nil || p.Done || p.CheckAfter == 0 {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if got := w.budget("zones").Status.Grants; len(got) != 0 {
		t.Errorf("grants: %+v", got)
	}
}
