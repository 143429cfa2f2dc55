//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// KubeVirt answers success to whoever writes the status of a machine, and keeps it as
// it was. A policy that marks there is told so, by the field, and writes ever more
// seldom; the pod stays, and who evicts it hears why.
func TestAMarkThatKubeVirtDiscardsIsNoticed(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	policy := ownPolicy(t, namespace, presetPolicy(t, "kubevirt"), func(s *v1alpha1.EvacuationPolicySpec) {
		s.Mark = &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "add", Path: "/status/evacuationNodeName", Value: "pod.spec.nodeName"}}}
		s.Unmark = &v1alpha1.WorkloadPatch{Operations: []v1alpha1.PatchOperation{{Op: "remove", Path: "/status/evacuationNodeName"}}}
		s.Cancel = nil
	})
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	mark := kube.RequestLog().Mark()
	pod := createOwnMachine(t, namespace, "vm", node, "LiveMigrate")
	evictUntil(t, "alice", pod, policy.Spec.Interceptor)
	const why = "What is written to /status/evacuationNodeName of VirtualMachineInstance"
	c := waitPolicy(t, policy.Name, v1alpha1.ConditionMarking, metav1.ConditionFalse, v1alpha1.ReasonDiscarded)
	saysAll(t, "the condition", c.Message, why, namespace+"/vm")
	if event := waitEvent(t, pod, "MarkDiscarded"); !strings.Contains(event.Note, why) {
		t.Errorf("event: %s", event.Note)
	}
	waitRequest(t, pod, "told what is wrong", says(policy.Spec.Interceptor, why))
	evictUntil(t, "alice", pod, "cannot go on: its marks come to nothing")
	const calls = 30
	for range calls {
		if got := evict(t, "alice", pod, eviction(pod)); got.code != http.StatusTooManyRequests {
			t.Fatalf("want 429, got %d: %s", got.code, got.body)
		}
	}
	lives(t, pod)
	waitMark(t, namespace, "vm", "")
	if writes := machineWrites(t, mark, namespace, "vm"); len(writes) > 8 {
		t.Errorf("%d marks: they are a loop:\n%s", len(writes), writes)
	}
}

// Side by side with KubeVirt's webhook, a drain that is canceled is canceled:
// KubeVirt takes its own mark back when Drawbridge asks it to.
func TestKubeVirtTakesItsMarkBack(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	runTheirWebhooks(t, namespace, nodes[1])
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Evacuates: true, Proceed: func(string) bool { return false }})
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	drain := startDrain(t, "alice", nodes[0])
	waitRequest(t, pod, "in the hands of the interceptor", activeIs(kubevirtInterceptor))
	waitMigrations(t, namespace, 1)
	if machine := must(getMachine(t.Context(), namespace, "vm"))(t); vmcrds.Text(machine, "status.evacuationNodeName") != nodes[0] {
		t.Error("KubeVirt has not marked it: the test shows nothing")
	}
	killed(t, drain)
	kubectl(t, "alice", "uncordon", nodes[0])
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitMark(t, namespace, "vm", "")
	waitMigrations(t, namespace, 0)
	lives(t, pod)
}

// The pod that a migration waits for is not evicted under its hands, although no
// budget counts for a pod that is Pending.
func TestKubeVirtAPendingTargetIsKept(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	machine := must(getMachine(t.Context(), namespace, "vm"))(t)
	target := launcher(machine, "virt-launcher-vm-target", "")
	target.Spec.NodeSelector = map[string]string{"nobody.example.com/has": "this"}
	create(t, target)
	got := evictUntil(t, "alice", target, "the guard of the pod is closed")
	if got.code != http.StatusTooManyRequests {
		t.Errorf("want 429, got %d: %s", got.code, got.body)
	}
	noRequest(t, target)
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(target), now); err != nil || now.DeletionTimestamp != nil {
		t.Errorf("the target is gone: %v", err)
	}
}

// KubeVirt sets and removes the descheduler's annotation by itself, whoever has set it,
// and KubeVirt 1.4 cannot end a failed migration while it has a value of others. So it is
// left to KubeVirt.
func TestKubeVirtNobodyFightsOverTheDeschedulersAnnotation(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	platform := &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Proceed: func(string) bool { return false }}
	runPlatform(t, platform)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	evictUntil(t, "alice", pod, kubevirtInterceptor)
	waitMigrations(t, namespace, 1)
	mark, looks := kube.RequestLog().Mark(), platform.Looks()
	const more = 30 // So often it could be taken away and put back.
	eventually(t, "KubeVirt to have looked again", func(context.Context) error {
		if seen := platform.Looks() - looks; seen < more {
			return fmt.Errorf("it has %d times", seen)
		}
		return nil
	})
	writes := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Verb == "patch" && r.Resource == "pods" && r.Namespace == namespace && r.Name == pod.Name
	})
	if len(writes) > 1 { // The guard's label.
		t.Errorf("%d patches of the pod:\n%s", len(writes), writes)
	}
}
