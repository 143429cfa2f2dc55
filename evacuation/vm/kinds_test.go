package vm

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
)

// A kind that is installed later is found, and a permission that is lacking told.
func TestKindsComeAndPermissionsAreNeeded(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, nil, "VirtualMachineInstance")
	p := preset(t, "kubevirt")
	if again := w.load(p); again != retryKinds {
		t.Errorf("try again in: want %s, got %s", retryKinds, again)
	}
	ready := func() (string, string) {
		conditions := w.store.conditions(t.Context(), w.store.all()[0])
		i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionReady })
		return conditions[i].Reason, conditions[i].Message
	}
	if reason, _ := ready(); reason != v1alpha1.ReasonKindNotInstalled {
		t.Errorf("ready: want %s, got %s", v1alpha1.ReasonKindNotInstalled, reason)
	}
	w.install(machineKind)
	if again := w.load(p); again != 0 {
		t.Errorf("try again in %s, though all is there", again)
	}
	if reason, message := ready(); reason != v1alpha1.ReasonReady {
		t.Errorf("ready: want %s, got %s: %s", v1alpha1.ReasonReady, reason, message)
	}
	w.denied.Store("patch")
	want := `Drawbridge may not patch virtualmachineinstances in API group "kubevirt.io". It is tried again every 30s.`
	if reason, message := ready(); reason != v1alpha1.ReasonForbidden || message != want {
		t.Errorf("ready: %s, %s", reason, message)
	}
}

// A policy that reads more of a kind makes another informer necessary. Until it has
// the objects, the policies there were go on as before, and the new one does not
// answer from objects that lack what it reads.
func TestANewPolicyDoesNotBlindTheOthers(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1", set("None", "spec", "other"))}, nil)
	first := preset(t, "kubevirt")
	w.load(first)
	release := w.holdLists()
	second := preset(t, "kubevirt")
	second.Name, second.UID, second.Generation = "second", "second", 1
	second.Spec.Interceptor, second.Spec.Pods.Selector.MatchLabels = "second.example.com", map[string]string{"second": "yes"}
	second.Spec.Strategy = "workload.?spec.?other.orValue('LiveMigrate')"
	w.store.load(t.Context(), []v1alpha1.EvacuationPolicy{*first, *second})
	ofSecond := launcherPod()
	ofSecond.Labels = map[string]string{"second": "yes"}
	ask := func(name string, pod *corev1.Pod) (preflight.Verdict, error) {
		return w.store.Preflight(name).Preflight(t.Context(), pod)
	}
	if got, err := ask("kubevirt.drawbridge.dev", launcherPod()); err != nil || got.Outcome != preflight.Proceed {
		t.Errorf("the first policy: %s, %v", got.Outcome, err)
	}
	if got, err := ask("second.example.com", ofSecond); err == nil {
		t.Errorf("the second policy answers %s before it can know", got.Outcome)
	}
	synced := make(chan struct{}, 10)
	w.store.mu.Lock()
	w.store.policies = append(w.store.policies, func() { synced <- struct{}{} })
	w.store.mu.Unlock()
	close(release)
	for range synced { // The other kinds may come first.
		if _, err := ask("second.example.com", ofSecond); err == nil {
			break
		}
	}
	if got, err := ask("second.example.com", ofSecond); err != nil || got.Outcome != preflight.Allow {
		t.Errorf("the second policy: %s, %v", got.Outcome, err)
	}
}
