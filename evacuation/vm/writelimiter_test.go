package vm

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What did not last under a policy may last under the next version of it: nobody who has
// repaired a policy waits for minutes.
func TestAChangedPolicyWritesWithoutAPause(t *testing.T) {
	w := newWorld(t, []runtime.Object{machine("LiveMigrate", "True", "n1")}, []client.Object{launcherPod()})
	p := preset(t, "kubevirt")
	w.load(p)
	key := writeKey{policy: "kubevirt", write: writeMark, workload: types.NamespacedName{Namespace: "ns", Name: "vm"}}
	for range writeLimit.Free {
		if err := w.store.writes.begin(key); err != nil {
			t.Fatal(err)
		}
	}
	w.load(p)
	if err := w.store.writes.begin(key); err == nil {
		t.Fatal("the same policy writes without a pause")
	}
	p.Generation++
	w.load(p)
	if err := w.store.writes.begin(key); err != nil {
		t.Errorf("the changed policy pauses: %v", err)
	}
}
