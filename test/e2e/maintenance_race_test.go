//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// What somebody else has cordoned stays so, and what they have asked of a pod, too.
func TestWhatOthersHaveDoneStays(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db").Node(node).Interceptors("db.example.com").Obj())
	kubectl(t, "bob", "cordon", node)
	setPodCondition(t, pod, v1alpha1.PodEvacuationRequest, corev1.ConditionTrue, "EvacuationByDescheduler")
	setPodCondition(t, pod, v1alpha1.PodEvacuationInitiated, corev1.ConditionFalse, "OwnerSays")

	m := maintain(t, ofNamespace(namespace, "-m").Drain())
	at := waitNode(t, node, cordonIs{true, v1alpha1.CordonOther, m.Name + "=Drain"})
	waitRequest(t, pod, "wanted", wantedBy(m.RequesterName()))
	report(t, pod, "db.example.com", begin)
	endMaintenance(t, m)
	waitNode(t, node, cordonIs{Unschedulable: true})
	waitNodeEvent(t, at, "NodeLeftCordoned")
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitCondition(t, pod, v1alpha1.PodEvacuationRequest, corev1.PodCondition{Type: v1alpha1.PodEvacuationRequest, Status: corev1.ConditionTrue, Reason: "EvacuationByDescheduler"})
	waitCondition(t, pod, v1alpha1.PodEvacuationInitiated, corev1.PodCondition{Type: v1alpha1.PodEvacuationInitiated, Status: corev1.ConditionFalse, Reason: "OwnerSays"})
}

// An uncordon by hand is taken back, with a warning and an event; the drain goes on.
func TestUncordonByHandIsTakenBack(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db").Node(node).Interceptors("db.example.com").Obj())
	m := maintain(t, ofNamespace(namespace, "-m").Drain())
	waitRequest(t, pod, "wanted", wantedBy(m.RequesterName()))
	want := cordonIs{true, v1alpha1.CordonOurs, m.Name + "=Drain"}
	at := waitNode(t, node, want)

	result := must(kube.Kubectl(t.Context(), as("carol"), "uncordon", node))(t)
	saysAll(t, "kubectl's standard error", result.Stderr, "Warning:", "is under maintenance (NodeMaintenance "+m.Name, "will be made unschedulable again")
	waitNodeEvent(t, at, "NodeCordonedAgain")
	waitNode(t, node, want)
	waitRequest(t, pod, "still wanted", wantedBy(m.RequesterName()))
	lives(t, pod)
}

// Nobody is refused or warned where no maintenance is.
func TestCordonWithoutMaintenanceIsNotWarnedAbout(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	result := must(kube.Kubectl(t.Context(), as("carol"), "cordon", node))(t)
	if err := result.Err(); err != nil || strings.Contains(result.Stderr, "Warning") {
		t.Errorf("error %v, standard error %q", err, result.Stderr)
	}
	m := maintain(t, ofNamespace(namespace, "-m"))
	waitMaintenance(t, m, "planned", inStage(v1alpha1.StagePlanning))
	waitNode(t, node, cordonIs{true, "", m.Name + "=Planning"})
	kubectl(t, "carol", "uncordon", node)
	result = must(kube.Kubectl(t.Context(), as("carol"), "cordon", node))(t)
	saysAll(t, "kubectl's standard error", result.Stderr, "Warning:", "it will stay unschedulable when the maintenance ends")
}

// Pods that land in the middle are included, DaemonSets' and finished ones are not.
func TestPodsThatLandInTheMiddle(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	first := createPod(t, builder.Pod(namespace, "first").Node(node).Interceptors("db.example.com").Obj())
	daemon := &createDaemons(t, namespace, node)[0]
	m := maintain(t, ofNamespace(namespace, "-m").Drain())
	waitRequest(t, first, "wanted", wantedBy(m.RequesterName()))
	late := createPod(t, builder.Pod(namespace, "late").Node(node).Interceptors("db.example.com").Obj())
	waitRequest(t, late, "wanted", wantedBy(m.RequesterName()))
	for _, pod := range []*corev1.Pod{first, late} {
		complete(t, pod, "db.example.com", time.Now)
		gone(t, pod)
	}
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
	again := createPod(t, builder.Pod(namespace, "again").Node(node).Interceptors("db.example.com").Obj())
	waitMaintenance(t, m, "draining again", inStage(v1alpha1.StageDrain))
	complete(t, again, "db.example.com", time.Now)
	gone(t, again)
	waitMaintenance(t, m, "drained again", inStage(v1alpha1.StageDrainComplete))
	noRequest(t, daemon)
	lives(t, daemon)
}

// Nodes enter and leave the selection by their labels, or cease to exist.
func TestNodesComeAndGo(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 3)
	var pods []*corev1.Pod
	for i, node := range nodes {
		pods = append(pods, createPod(t, builder.Pod(namespace, fmt.Sprintf("db-%d", i)).Node(node).Interceptors("db.example.com").Obj()))
	}
	m := maintain(t, builder.NodeMaintenance(namespace).Term("example.com/rack", corev1.NodeSelectorOpIn, namespace).Drain())
	waitMaintenance(t, m, "without nodes", drainedIs("False", v1alpha1.ReasonNoMatchingNodes))

	for i := range 2 {
		label(t, nodes[i], "example.com/rack", namespace)
		waitRequest(t, pods[i], "wanted", wantedBy(m.RequesterName()))
	}
	noRequest(t, pods[2])

	label(t, nodes[0], "example.com/rack", "another")
	waitNode(t, nodes[0], cordonIs{})
	waitRequest(t, pods[0], "Canceled", isTrue(v1alpha1.ConditionCanceled))
	lives(t, pods[0])

	node := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: nodes[1]}, node); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	waitMaintenance(t, m, "without nodes again", func(m *v1alpha1.NodeMaintenance) bool { return m.Status.Progress.Nodes == 0 })
}

// kubectl drain and a maintenance on the same node at once: both end well, and the
// pods are evacuated once.
func TestKubectlDrainsANodeUnderMaintenance(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db").Node(node).Interceptors("db.example.com").Obj())
	plain := createPod(t, builder.Pod(namespace, "plain").Node(node).Obj())
	m := maintain(t, ofNamespace(namespace, "-m").Drain())
	drain := startDrain(t, "alice", node)
	waitRequest(t, pod, "wanted by both", func(er *v1alpha1.EvictionRequest) bool {
		return len(er.Spec.Requesters) == 2 && strings.Contains(strings.Join(requesters(er), " "), m.RequesterName())
	})
	complete(t, pod, "db.example.com", time.Now)
	gone(t, pod)
	gone(t, plain)
	finishWell(t, drain)
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
	// Whoever was first, the maintenance or kubectl, has cordoned the node.
	eventually(t, "the node to be cordoned", func(ctx context.Context) error {
		now := &corev1.Node{}
		if err := admin.Get(ctx, client.ObjectKey{Name: node}, now); err != nil {
			return err
		}
		if got := cordonOf(now); !got.Unschedulable || got.By == "" || got.Stages != m.Name+"=DrainComplete" {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}

// What a maintenance has begun, the next manager goes on with: also its end.
func TestAMaintenanceOutlivesItsManager(t *testing.T) {
	manager := startManager(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	first := createPod(t, builder.Pod(namespace, "first").Node(node).Interceptors("db.example.com").Obj())
	second := createPod(t, builder.Pod(namespace, "second").Node(node).Interceptors("db.example.com").Obj())
	m := builder.NodeMaintenance(namespace).Nodes(node).Drain().Obj()
	create(t, m)
	for _, pod := range []*corev1.Pod{first, second} {
		waitRequest(t, pod, "wanted", wantedBy(m.RequesterName()))
	}
	manager.Kill()
	if err := admin.Delete(t.Context(), m.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	startManager(t, nil)
	endMaintenance(t, m)
	waitNode(t, node, cordonIs{})
	for _, pod := range []*corev1.Pod{first, second} {
		waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
		waitCondition(t, pod, v1alpha1.PodEvacuationRequest, corev1.PodCondition{})
		lives(t, pod)
	}
}
