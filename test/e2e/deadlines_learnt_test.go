//go:build unix

package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

var (
	nodeClaim = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"}
	machine   = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"}
)

func installKind(t *testing.T, kind schema.GroupVersionKind, plural string, scope apiextensionsv1.ResourceScope) {
	t.Helper()
	crd := vmcrds.Definition(kind, plural, false)
	crd.Spec.Scope = scope
	if err := vmcrds.Install(t.Context(), admin, []*apiextensionsv1.CustomResourceDefinition{crd}); err != nil {
		t.Fatal(err)
	}
}

// waitDeadline waits until the interceptors of a pod have until then, because of the source.
func waitDeadline(t *testing.T, pod *corev1.Pod, source string, at time.Time) *v1alpha1.EvictionRequest {
	t.Helper()
	want := metav1.NewTime(at)
	return waitRequest(t, pod, "to have until "+at.String()+" by "+source, func(er *v1alpha1.EvictionRequest) bool {
		return er.Status.DeadlineSource == source && er.Status.Deadline.Equal(&want)
	})
}

// Karpenter says on the NodeClaim when it will delete the pods of a node.
func TestTheDeadlineOfANodeClaimIsLearnt(t *testing.T) {
	shareManager(t)
	installKind(t, nodeClaim, "nodeclaims", apiextensionsv1.ClusterScoped)
	namespace, node := placed(t)
	patchNode(t, node, func(n *corev1.Node) { n.Labels["karpenter.sh/nodepool"] = "default" })
	claim := vmcrds.New(nodeClaim, "", namespace, map[string]any{"status.nodeName": node})
	claim.SetFinalizers([]string{"karpenter.sh/termination"})
	create(t, claim)
	t.Cleanup(func() {
		claim.SetFinalizers(nil)
		if err := client.IgnoreNotFound(admin.Update(context.WithoutCancel(t.Context()), claim)); err != nil {
			t.Error(err)
		}
	})
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(60).Interceptors("a.example.com", "b.example.com").Obj())
	evict(t, "alice", pod, eviction(pod))
	er := waitRequest(t, pod, "active", activeIs("a.example.com"))
	if er.Status.Deadline != nil {
		t.Fatalf("a NodeClaim that is not deleted has a deadline: %+v", er.Status)
	}
	says := func(at time.Time) {
		t.Helper()
		patch(t, claim, func() {
			claim.SetAnnotations(map[string]string{"karpenter.sh/nodeclaim-termination-timestamp": at.UTC().Format(time.RFC3339)})
		})
	}
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	says(at)
	if err := admin.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	waitDeadline(t, pod, "NodeClaim "+namespace, at.Add(-reserved))
	at = time.Now().Add(reserved).Add(2 * time.Second).Truncate(time.Second)
	says(at)
	er = waitRequest(t, pod, "cut off", isTrue(v1alpha1.ConditionCutOff))
	message := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCutOff).Message
	saysAll(t, "the condition", message, "The deadline of NodeClaim "+namespace+" leaves the interceptors until "+er.Status.Deadline.UTC().Format(time.RFC3339),
		"a.example.com was not done, and b.example.com got no turn")
	if asked := at.Add(-reserved); !er.Status.Deadline.Time.Equal(asked) {
		// It was over when a busy manager learnt of it, so they were given a moment.
		saysAll(t, "the condition, with a deadline at "+asked.String(), message, "The time asked for was over")
	}
	gone(t, pod)
}

// A pod that is asked for when its node is already going is told so from the beginning.
func TestATaintAnnouncesTheEndOfANode(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(1).Interceptors("a.example.com").Obj())
	const leaves = 2*time.Minute - time.Second - 5*time.Second // Less the grace period and the margin.
	before := time.Now().Truncate(time.Second)
	taint := corev1.Taint{Key: "aws-node-termination-handler/spot-itn", Value: "1", Effect: corev1.TaintEffectNoSchedule}
	patchNode(t, node, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) })
	evict(t, "alice", pod, eviction(pod))
	er := waitRequest(t, pod, "active, with a deadline", func(er *v1alpha1.EvictionRequest) bool {
		return activeIs("a.example.com")(er) && er.Status.Deadline != nil
	})
	if until := er.Status.Deadline.Time; until.Before(before.Add(leaves)) || until.After(er.Status.ActivationTime.Add(leaves)) {
		t.Errorf("a taint of two minutes since %s leaves them until %s: %+v", before, until, er.Status)
	}
	first := er.Status.Deadline
	// It does not count from now again.
	must((&requester.Requester{Name: "patient.example.com", Client: must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t)}).Join(t.Context(), pod))(t)
	er = waitRequest(t, pod, "seen with both", func(er *v1alpha1.EvictionRequest) bool {
		return len(er.Spec.Requesters) == 2 && er.Status.ObservedGeneration == er.Generation
	})
	if !er.Status.Deadline.Equal(first) || er.Status.DeadlineSource != "taint "+taint.Key+" of node "+node {
		t.Errorf("at first %s, then %s because of %s", first, er.Status.Deadline, er.Status.DeadlineSource)
	}
	patchNode(t, node, func(n *corev1.Node) { n.Spec.Taints = nil })
	waitRequest(t, pod, "in no hurry", func(er *v1alpha1.EvictionRequest) bool {
		return er.Status.Deadline == nil && er.Status.DeadlineSource == ""
	})
}

// A managed upgrade does not say how long it waits, but its administrators know.
func TestThePatienceOfAClassOfCallers(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(60).Interceptors("a.example.com").Obj())
	evict(t, "eks:node-manager", pod, eviction(pod))
	er := waitRequest(t, pod, "active", activeIs("a.example.com"))
	lease := must(leaseOf(t.Context(), "eks:node-manager", node))(t)
	waitDeadline(t, pod, "requester "+er.Spec.Requesters[0].Name+", which waits 1h0m0s (managed-upgrade)", lease.CreationTimestamp.Add(time.Hour).Add(-reserved))
}

// The Machine of a node often lives in another cluster. It may also be installed later.
func TestTheDeadlineOfAMachineIsLearntOnceTheKindIsThere(t *testing.T) {
	m := startManager(t, nil)
	namespace, node := placed(t)
	patchNode(t, node, func(n *corev1.Node) {
		n.Annotations = map[string]string{"cluster.x-k8s.io/machine": "worker-1"}
	})
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(60).Interceptors("a.example.com").Obj())
	wants(t, pod) // The clock goes further than a silent kubectl counts.
	waitRequest(t, pod, "active", activeIs("a.example.com"))

	installKind(t, machine, "machines", apiextensionsv1.NamespaceScoped)
	began := time.Now().Truncate(time.Second)
	create(t, vmcrds.New(machine, namespace, "worker-1", map[string]any{
		"spec.deletion.nodeDrainTimeoutSeconds": int64(3600),
		"status.deletion.nodeDrainStartTime":    began.UTC().Format(time.RFC3339),
		"status.nodeRef.name":                   node,
	}))
	m.Clock.Advance(5 * time.Minute)
	patchNode(t, node, func(n *corev1.Node) { n.Labels["touched"] = "true" })
	waitDeadline(t, pod, "Machine "+namespace+"/worker-1", began.Add(time.Hour).Add(-reserved))
}
