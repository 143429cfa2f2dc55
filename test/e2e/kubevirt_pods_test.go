//go:build unix

package e2e

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// A target pod is not marked; its evacuation waits for the migration and then goes
// on from there. The descheduler hears the words it knows.
func TestKubeVirtG10ATargetPodWaits(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	machine := must(getMachine(t.Context(), namespace, "vm"))(t)
	target := createPod(t, launcher(machine, "virt-launcher-vm-target", nodes[1]))
	waitGuard(t, target, true)
	got := evictUntil(t, "alice", target, "Eviction triggered evacuation: waiting for interceptor")
	if got.code != http.StatusTooManyRequests {
		t.Errorf("want 429, got %d", got.code)
	}
	waitRequest(t, target, "waiting", says(kubevirtInterceptor, "the target of a migration"))
	waitMark(t, namespace, "vm", "")
	setMachine(t, namespace, "vm", func(m *unstructured.Unstructured) { vmcrds.Set(m, "status.nodeName", nodes[1]) })
	waitMark(t, namespace, "vm", nodes[1])
}

// Hotplug pods wait for their machine, whatever its strategy.
func TestKubeVirtHotplugPod(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	owner := createMachine(t, namespace, "vm", nodes[0], "None", "True")
	plug := createPod(t, builder.Pod(namespace, "hp-volume-1").Node(nodes[0]).Label("kubevirt.io", "hotplug-disk").
		Owner(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID}).Obj())
	got := evictUntil(t, "alice", plug, "the pod holds a volume of a running virtual machine and moves with it")
	if got.code != http.StatusTooManyRequests {
		t.Errorf("want 429, got %d", got.code)
	}
	noRequest(t, plug)
	lives(t, plug)
	data := []byte(`{"status":{"phase":"Succeeded"}}`)
	if err := admin.Status().Patch(t.Context(), owner, client.RawPatch(types.MergePatchType, data)); err != nil {
		t.Fatal(err)
	}
	evictUntilGranted(t, plug)
	gone(t, plug)
}

// KubeVirt's own webhook was first: its mark counts, and is not written again.
func TestKubeVirtMarkedAlready(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "status.evacuationNodeName", nodes[0])
	})
	mark := kube.RequestLog().Mark()
	evictUntil(t, "alice", pod, kubevirtInterceptor)
	waitRequest(t, pod, "followed", says(kubevirtInterceptor, "Eviction triggered evacuation of VirtualMachineInstance "+namespace+"/vm"))
	if writes := machineWrites(t, mark, namespace, "vm"); len(writes) != 0 {
		t.Errorf("want no write, got:\n%s", writes)
	}
}

// A native requester of a machine that cannot migrate: the interceptor declines and
// says so.
func TestKubeVirtNativeRequester(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "False")
	create(t, builder.EvictionRequest(namespace, pod.Name, pod.UID).Requesters("native.example.com").Obj())
	waitRequest(t, pod, "declined", says(kubevirtInterceptor, "the strategy is LiveMigrate and the workload is not migratable. The guard keeps the pod"))
}

// Who asked for what is in events.
func TestKubeVirtG8Events(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	pod := createMachine(t, namespace, "vm", nodes[0], "External", "True")
	evictUntil(t, "alice", pod, kubevirtInterceptor)
	waitMark(t, namespace, "vm", nodes[0])
	event := waitEvent(t, pod, "WorkloadMarked")
	if want := "VirtualMachineInstance vm is marked for evacuation, by EvacuationPolicy kubevirt."; event.Note != want {
		t.Error(cmp.Diff(want, event.Note))
	}
}
