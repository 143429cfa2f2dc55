//go:build unix

package kubevirt

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// uncordonedBefore: the drain is canceled while the migration waits for a place. The
// machine stays, nobody wants it away, and no migration is left. Where KubeVirt keeps its
// mark, the machine moves when there is room, and it is said that it will.
func uncordonedBefore(t *testing.T, kept bool) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	cordon(t, nodes[1]) // So that the target of the migration is Pending.
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	waitPhases(t, namespace, "Scheduling")
	callOff(t, drain, nodes[0])
	calledOff(t, kept, pod, nodes, func() { uncordon(t, nodes[1]) })
}

// uncordonedWhile: the drain is canceled while the machine moves.
func uncordonedWhile(t *testing.T, kept bool) {
	t.Helper()
	w := beginDrain(t)
	callOff(t, w.drain, w.nodes[0])
	calledOff(t, kept, w.pod, w.nodes, func() { w.free.Store(true) })
}

// calledOff wants the machine of a drain that was canceled to stay, without a mark and
// a migration. Where the mark is kept, KubeVirt ends what it began as soon as it can,
// with one migration, and then there is no mark.
func calledOff(t *testing.T, kept bool, pod *corev1.Pod, nodes []string, letGo func()) {
	t.Helper()
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	if kept {
		waitEvent(t, pod.Namespace, "MarkKept")
		lives(t, pod)
		letGo()
		runsOn(t, pod.Namespace, "vm", nodes[1])
		unmarked(t, pod.Namespace, "vm")
		waitPhases(t, pod.Namespace, "Succeeded")
		lives(t, launcher(t, pod.Namespace, "vm", nodes[1]))
		return
	}
	unmarked(t, pod.Namespace, "vm")
	noneUnfinished(t, pod.Namespace)
	stays(t, pod.Namespace, "vm", nodes[0])
	lives(t, pod)
}

// uncordonedAfter: the drain is canceled when the machine has moved. It stays where it
// is, and does not move again.
func uncordonedAfter(t *testing.T, _ bool) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	runsOn(t, namespace, "vm", nodes[1])
	callOff(t, drain, nodes[0])
	unmarked(t, namespace, "vm")
	waitRequest(t, pod, "over", func(er *v1alpha1.EvictionRequest) bool {
		return isTrue(v1alpha1.ConditionEvicted)(er) || isTrue(v1alpha1.ConditionCanceled)(er)
	})
	waitPhases(t, namespace, "Succeeded")
	stays(t, namespace, "vm", nodes[1])
	lives(t, launcher(t, namespace, "vm", nodes[1]))
}

// stays wants a machine to run where it was.
func stays(t *testing.T, namespace, name, node string) {
	t.Helper()
	waitMachine(t, namespace, name, "to stay on "+node, func(m *unstructured.Unstructured) bool {
		return vmcrds.Text(m, "status.nodeName") == node && vmcrds.Text(m, "status.phase") == "Running"
	})
}
