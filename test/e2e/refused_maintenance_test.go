//go:build unix

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

func refusedNode(t *testing.T, m *manager.Manager) {
	namespace, name := placed(t)
	node := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	end := refuse(t, refusal{resource: "nodes", namespace: namespace, only: "object.metadata.name == '" + name + "'"})
	wish := maintain(t, ofNamespace(namespace, "-m").Cordon())
	wantRefused(t, m, node, refused.Node, refused.Policy, words)
	end()
	waitMaintenance(t, wish, "cordoned", inStage(v1alpha1.StageCordon))
}

func refusedPodCondition(t *testing.T, m *manager.Manager) {
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "plain").Node(node).Obj())
	end := refuse(t, refusal{resource: "pods/status", namespace: namespace})
	wish := maintain(t, ofNamespace(namespace, "-m").Drain())
	wantRefused(t, m, pod, refused.PodCondition, refused.Policy, words)
	// It asks a pod's owner, which is no reason to keep the pod.
	gone(t, pod)
	waitMaintenance(t, wish, "drained", inStage(v1alpha1.StageDrainComplete))
	end()
}

func refusedMaintenance(t *testing.T, m *manager.Manager) {
	namespace, _ := placed(t)
	name := namespace + "-m"
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "nodemaintenances/status", namespace: namespace, only: "object.metadata.name == '" + name + "'"})
	wish := maintain(t, ofNamespace(namespace, "-m").Cordon())
	wantRefused(t, m, wish, refused.Maintenance, refused.Policy, words)
	end()
	waitMaintenance(t, wish, "cordoned", inStage(v1alpha1.StageCordon))
}
