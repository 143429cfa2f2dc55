package maintenance_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// The taint is made again, and those of others stay.
func TestATaintThatSomebodyRemovesIsMadeAgain(t *testing.T) {
	w := ordered(t, daemonsWave())
	w.daemon("agent")
	w.settle(t)
	node := w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node).DeepCopy()
	dedicated := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	remove := func() {
		node.Spec.Taints = []corev1.Taint{dedicated}
		w.put(node.DeepCopy())
		w.reconcile(t)
	}
	wants := func(when string, taints ...corev1.Taint) {
		if diff := cmp.Diff(append([]corev1.Taint{dedicated}, taints...), w.taints()); diff != "" {
			t.Errorf("taints %s (-want +got):\n%s", when, diff)
		}
	}
	remove()
	wants("at once", translate.MaintenanceTaint())
	remove()
	wants("when it is removed just after that")
	w.settle(t)
	wants("after a pause", translate.MaintenanceTaint())
}

// While what somebody takes away waits to be made again, all else goes on.
func TestWhatEndsMeanwhileIsNotMadeAgain(t *testing.T) {
	cases := map[string]func(*world){
		"the maintenance": func(w *world) {
			w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
		},
		"its drain": func(w *world) {
			w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Cordon, m.Spec.Drain = false, false })
		},
		"the node": func(w *world) { w.remove(w.nodes[types.NamespacedName{Name: "n1"}]) },
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			w := ordered(t, daemonsWave())
			w.daemon("agent")
			w.settle(t)
			for range 2 {
				node := w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node).DeepCopy()
				node.Spec.Taints, node.Spec.Unschedulable = nil, false
				w.put(node)
				w.reconcile(t)
			}
			if got := w.annotations("n1"); len(w.taints()) > 0 || got["unschedulable"] != "" {
				t.Fatalf("made again at once: taints %v, annotations %v", w.taints(), got)
			}
			w.told()
			end(w)
			w.settle(t)
			if got := w.told(); slices.Contains(got, "NodeTainted") || slices.Contains(got, "NodeCordonedAgain") {
				t.Errorf("events %v", got)
			}
			if w.nodes[types.NamespacedName{Name: "n1"}] == nil {
				return
			}
			if got := w.annotations("n1"); len(w.taints()) > 0 || len(got) > 0 {
				t.Errorf("taints %v, annotations %v", w.taints(), got)
			}
		})
	}
}
