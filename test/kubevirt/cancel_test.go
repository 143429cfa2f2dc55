//go:build unix

package kubevirt

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/vmcrds"
)

// uncordonedBefore: the drain is called off while the migration waits for a place. The
// machine stays, nobody wants it away, and no migration is left.
func uncordonedBefore(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	cordon(t, nodes[1]) // So that the target of the migration is Pending.
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	waitPhases(t, namespace, "Scheduling")
	callOff(t, drain, nodes[0])
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	unmarked(t, namespace, "vm")
	noneUnfinished(t, namespace)
	stays(t, namespace, "vm", nodes[0])
	lives(t, pod)
}

// uncordonedWhile: the drain is called off while the machine moves.
func uncordonedWhile(t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	guests.play(namespace, func(string) guest { return guest{held: true} })
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	waitPhases(t, namespace, "Running")
	callOff(t, drain, nodes[0])
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	unmarked(t, namespace, "vm")
	noneUnfinished(t, namespace)
	stays(t, namespace, "vm", nodes[0])
	lives(t, pod)
}

// uncordonedAfter: the drain is called off when the machine has moved. It stays where it
// is, and does not move again.
func uncordonedAfter(t *testing.T) {
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
