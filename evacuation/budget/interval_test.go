package budget

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A pod that takes long to end left when it was deleted. The API server moves its
// deletionTimestamp to its end, in an update of its own.
func TestTheIntervalBeginsWhenAPodBeginsToLeave(t *testing.T) {
	w := newWorld(t, []string{"a"}, oneZone().MinInterval(time.Minute))
	r := w.born()
	first, second := w.pod("a", 0, ""), w.pod("a", 1, "")
	if p, err := w.turn(r, first); err != nil || !p.Done {
		t.Fatalf("the first pod: %+v, %v", p, err)
	}
	deleted := func(grace int64) *corev1.Pod {
		pod := first.DeepCopy()
		pod.DeletionTimestamp = new(metav1.NewTime(w.clock.Now().Add(time.Duration(grace) * time.Second)))
		pod.DeletionGracePeriodSeconds = &grace
		return pod
	}
	w.clock.Step(20 * time.Second)
	r.state.putPod(deleted(300), w.clock.Now())
	w.clock.Step(50 * time.Second)
	r.state.putPod(deleted(0), w.clock.Now())
	r.state.removePod(deleted(0), w.clock.Now())
	w.evict(first)
	w.replace("a", 0)
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{5 * time.Second, false}, {7 * time.Second, true}} { // It began to leave 55, and 62 seconds ago.
		w.clock.Step(step.after)
		w.see(r)
		w.decide(r)
		if p, err := w.turn(r, second); err != nil || p.Done != step.want {
			t.Errorf("%s after its end: granted %v, want %v (%v)", step.after, p.Done, step.want, err)
		}
	}
}
