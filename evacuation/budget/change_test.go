package budget

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// What was granted is reported and acted upon. A budget that comes in between takes nothing
// back, or another zone could go, too.
func TestWhatWasGrantedIsNotTakenBack(t *testing.T) {
	w := newWorld(t, []string{"a", "b"}, oneZone())
	r := w.born()
	a := w.pod("a", 0, "")
	if p, err := w.turn(r, a); err != nil || !p.Done {
		t.Fatalf("zone a: %+v, %v", p, err)
	}
	nothing := builder.EvictionBudget(shop, "nothing", "app", "ring").UID("budget-nothing").Generation(1).MaxUnavailable("0").Obj()
	if err := w.client.Create(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	w.see(r)
	w.clock.Step(time.Hour)
	w.decide(r)
	if diff := cmp.Diff([]string{"nothing", "zones"}, r.state.grantedBy(r.state.space(shop), a.UID)); diff != "" {
		t.Errorf("budgets in which its place is taken (-want +got):\n%s", diff)
	}
	if p, err := w.turn(r, a); err != nil || !p.Done {
		t.Errorf("zone a, asked again: %+v, %v", p, err)
	}
	if p, err := w.turn(r, w.pod("b", 0, "")); err != nil || p.Done {
		t.Errorf("zone b: %+v, %v", p, err)
	}
}

// A budget is changed while a decision about it is under way.
func TestAChangeDuringADecisionForgetsNoPod(t *testing.T) {
	w := newWorld(t, []string{"a", "b"}, oneZone())
	r := w.born()
	granted, deleted := w.pod("a", 0, ""), w.pod("a", 1, "")
	if p, err := w.turn(r, granted); err != nil || !p.Done {
		t.Fatalf("zone a: %+v, %v", p, err)
	}
	for _, pod := range []*corev1.Pod{granted, deleted} {
		r.state.removePod(pod, noon)
	}
	s := r.state.space(shop)
	old, _ := r.state.component(s, "zones")
	r.state.putBudget(oneZone().UID("budget-zones").Generation(2).Obj())
	r.state.gather(s, old, nil, nil, nil, &owners{client: r.client, found: map[string]found{}}, noon)
	var left []types.UID
	for _, g := range s.budgets["zones"].gone {
		left = append(left, g.uid)
	}
	if diff := cmp.Diff([]types.UID{granted.UID, deleted.UID}, left); diff != "" {
		t.Errorf("pods that have left (-want +got):\n%s", diff)
	}
}

// Outside of the windows nobody waits in vain, however long that is.
func TestOutsideOfItsWindowsABudgetRaisesNoAlert(t *testing.T) {
	w := newWorld(t, []string{"a"}, oneZone().Window("0 0 1 1 *", time.Hour))
	r := w.born()
	pod := w.pod("a", 0, "")
	since := func() time.Time { return r.state.space(shop).budgets["zones"].since }
	if p, err := w.turn(r, pod); err != nil || p.Done {
		t.Fatalf("it does not wait: %+v, %v", p, err)
	}
	if !since().IsZero() {
		t.Errorf("it waits in vain since %s", since())
	}
	w = newWorld(t, []string{"a"}, oneZone().MaxUnavailable("0"))
	r = w.born()
	if p, err := w.turn(r, pod); err != nil || p.Done {
		t.Fatalf("it does not wait: %+v, %v", p, err)
	}
	if !since().Equal(noon) {
		t.Errorf("it waits in vain since %s, want %s", since(), noon)
	}
}
