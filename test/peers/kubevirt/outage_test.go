//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

// While Drawbridge is down nobody can evict a machine that is guarded: with guard Always
// every one that must not be shut down, with WhileEvacuating those that are on their way.
// KubeVirt's webhooks are removed and ours is ignored, so nothing but the guard is left.
// When Drawbridge is back, the drain that went on all the time ends.
func TestOutage(t *testing.T) {
	needKubeVirt(t)
	for _, mode := range []v1alpha1.GuardPolicy{v1alpha1.GuardAlways, v1alpha1.GuardWhileEvacuating} {
		t.Run(string(mode), func(t *testing.T) { outage(t, mode) })
	}
}

func outage(t *testing.T, mode v1alpha1.GuardPolicy) {
	t.Helper()
	m := startManager(t)
	setGuard(t, mode)
	withoutTheirs(t)
	ignoreUs(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	guests.play(namespace, func(string) guest { return guest{held: true} })
	createMachines(t, namespace, nodes[0], "LiveMigrate", "moving", "untouched")
	moving, untouched := launcher(t, namespace, "moving", nodes[0]), launcher(t, namespace, "untouched", nodes[0])
	evictUntil(t, moving, interceptor)
	waitPhases(t, namespace, "Running")
	guarded := []*corev1.Pod{moving}
	if mode == v1alpha1.GuardAlways {
		guarded = append(guarded, untouched)
	}
	if !theirs.old { // It makes budgets for its machines; the guard stays away there.
		for _, pod := range guarded {
			waitGuard(t, pod)
		}
	}
	m.StopFor(t)
	for _, pod := range guarded {
		for range 5 {
			if got := evict(t, pod, evictionOf(pod)); got.code != http.StatusTooManyRequests {
				t.Errorf("pod %s: want 429, got %d: %s", pod.Name, got.code, got.body)
			}
		}
		lives(t, pod)
	}
	guests.play(namespace, func(string) guest { return guest{} })
	runsOn(t, namespace, "moving", nodes[1]) // KubeVirt continues without us.
	startManager(t)
	setGuard(t, mode)
	finishWell(t, startDrain(t, "alice", nodes[0]), 2*patience)
	runsOn(t, namespace, "untouched", nodes[1])
	gone(t, moving)
	gone(t, untouched)
}

// setGuard changes when the guard protects machines, until the end of the test.
func setGuard(t *testing.T, mode v1alpha1.GuardPolicy) {
	t.Helper()
	set := func(mode v1alpha1.GuardPolicy) {
		registration := &v1alpha1.EvictionInterceptor{}
		// The test's own context may have ended by now.
		if err := admin.Get(context.Background(), client.ObjectKey{Name: interceptor}, registration); err != nil {
			t.Fatal(err)
		}
		before := registration.DeepCopy()
		registration.Spec.Guard = mode
		if err := admin.Patch(context.Background(), registration, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	set(mode)
	t.Cleanup(func() { set(v1alpha1.GuardAlways) })
}

// ignoreUs has the API server let evictions pass while we are down.
func ignoreUs(t *testing.T) {
	t.Helper()
	set := func(policy admissionregistrationv1.FailurePolicyType) {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := admin.Get(context.Background(), client.ObjectKey{Name: inst.Release}, config); err != nil {
			t.Fatal(err)
		}
		before := config.DeepCopy()
		config.Webhooks[0].FailurePolicy = &policy
		config.Annotations[failurepolicy.WantedAnnotation] = string(policy)
		if err := admin.Patch(context.Background(), config, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	set(admissionregistrationv1.Ignore)
	t.Cleanup(func() { set(admissionregistrationv1.Fail) })
}

// waitGuard waits until the guard of a pod is closed.
func waitGuard(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "the guard of pod "+pod.Name+" to be closed", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.Labels[v1alpha1.GuardLabel] != v1alpha1.GuardClosed {
			return fmt.Errorf("labels %v", now.Labels)
		}
		return nil
	})
}
