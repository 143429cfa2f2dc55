package evictor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestEvictorWaitsForTheGuard(t *testing.T) {
	t.Parallel()
	guarded := ourPod().Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed)
	b := newBench(t, ourRequest().Obj(), guarded.Obj())
	b.Guarded = func(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed }

	// No answer is prepared: a call would end the test.
	if after := b.reconcile(); after != guardRetry {
		t.Errorf("it looks again after %s, want %s: one that is held opens without an event", after, guardRetry)
	}
	if len(b.log.Events) != 0 || b.applied != 0 {
		t.Errorf("events %v, %d reports, want none for a guard that opens soon", b.log.Events, b.applied)
	}
	b.clock.Step(time.Hour)
	b.reconcile()
	if diff := cmp.Diff("The guard of the pod is closed.", reportOf(b.request()).Message); diff != "" {
		t.Errorf("report about one that stays closed (-want +got):\n%s", diff)
	}

	opened := &corev1.Pod{}
	if err := b.server.Get(t.Context(), client.ObjectKeyFromObject(guarded.Obj()), opened); err != nil {
		t.Fatal(err)
	}
	delete(opened.Labels, v1alpha1.GuardLabel)
	if err := b.server.Update(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
	b.answers = []error{nil}
	b.reconcile()
	if len(b.calls) != 1 {
		t.Errorf("calls when it opens: got %v, want one", b.calls)
	}
}

// The evictor of a new leader may be faster than what it asks about guards.
func TestEvictorWaitsUntilItIsKnownWhoIsGuarded(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	synced := false
	b.Synced = func() bool { return synced }
	b.Guarded = func(*corev1.Pod) bool { return !synced }
	if after := b.reconcile(); after != syncRetry || len(b.calls) != 0 {
		t.Errorf("before it is known: looks again after %s with %d calls, want %s and none", after, len(b.calls), syncRetry)
	}
	synced = true
	b.answers = []error{nil}
	b.reconcile()
	if len(b.calls) != 1 {
		t.Errorf("calls when it is known: got %v, want one", b.calls)
	}
}
