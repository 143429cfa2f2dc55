package budget

import (
	"testing"
	"time"
)

// The interval is between evictions: a pod that was granted long ago and has just left makes
// the next one wait.
func TestTheIntervalIsBetweenEvictions(t *testing.T) {
	const interval = time.Minute
	w := newWorld(t, []string{"a"}, oneZone().MinInterval(interval))
	r := w.born()
	first, second := w.pod("a", 0, ""), w.pod("a", 1, "")
	granted := func() bool {
		t.Helper()
		w.see(r)
		w.decide(r)
		p, err := w.turn(r, second)
		if err != nil {
			t.Fatal(err)
		}
		return p.Done
	}
	if p, err := w.turn(r, first); err != nil || !p.Done {
		t.Fatalf("the first pod: %+v, %v", p, err)
	}
	w.clock.Step(50 * time.Second)
	w.evict(first)
	if granted() {
		t.Fatal("the second pod is granted before the interval is over")
	}
	w.clock.Step(50 * time.Second)
	if granted() {
		t.Error("the second pod is granted 50s after the first one has left")
	}
	w.clock.Step(10 * time.Second)
	if !granted() {
		t.Error("the second pod is not granted an interval after the first one has left")
	}
}
