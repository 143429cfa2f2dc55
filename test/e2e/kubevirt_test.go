//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// kubevirtInterceptor is the one of the preset.
const kubevirtInterceptor = "kubevirt.drawbridge.dev"

// migratable is the value of the condition LiveMigratable; empty for none.
type migratable string

// createMachine creates a running virtual machine and its pod.
func createMachine(t *testing.T, namespace, name, node, strategy string, can migratable, changes ...func(*unstructured.Unstructured)) *corev1.Pod {
	t.Helper()
	fields := map[string]any{"status.nodeName": node, "status.phase": "Running"}
	if strategy != "" {
		fields["spec.evictionStrategy"] = strategy
	}
	if can != "" {
		fields["status.conditions"] = []any{map[string]any{"type": "LiveMigratable", "status": string(can)}}
	}
	machine := vmcrds.New(vmcrds.Machine, namespace, name, fields)
	machine.SetAnnotations(map[string]string{"example.com/any": "thing"})
	for _, change := range changes {
		change(machine)
	}
	createRunning(t, machine)
	return createPod(t, launcher(machine, "virt-launcher-"+name, node))
}

// createRunning creates a machine with its status, which KubeVirt's accounts write.
func createRunning(t *testing.T, machine *unstructured.Unstructured) {
	t.Helper()
	status, _, err := unstructured.NestedMap(machine.Object, "status")
	if err != nil {
		t.Fatal(err)
	}
	create(t, machine)
	machine.Object["status"] = status
	if err := virtHandler.Update(t.Context(), machine); err != nil {
		t.Fatalf("start machine %s: %v", machine.GetName(), err)
	}
}

// launcher is a pod of a machine.
func launcher(machine *unstructured.Unstructured, name, node string) *corev1.Pod {
	return builder.Pod(machine.GetNamespace(), name).Node(node).
		Label("kubevirt.io", "virt-launcher").Annotation("kubevirt.io/domain", machine.GetName()).
		Owner(metav1.OwnerReference{
			APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: machine.GetName(), UID: machine.GetUID(), Controller: new(true),
		}).Obj()
}

// getMachine reads a machine.
func getMachine(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(vmcrds.Machine)
	return machine, admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, machine)
}

// markOf is the node for which a machine is marked, by us or by KubeVirt.
func markOf(machine *unstructured.Unstructured) string {
	if node := machine.GetAnnotations()["drawbridge.dev/evacuate-node"]; node != "" {
		return node
	}
	return vmcrds.Text(machine, "status.evacuationNodeName")
}

// waitMark waits until the machine is marked for that node; empty for not at all.
func waitMark(t *testing.T, namespace, name, node string) *unstructured.Unstructured {
	t.Helper()
	var machine *unstructured.Unstructured
	eventually(t, fmt.Sprintf("machine %s to be marked for node %q", name, node), func(ctx context.Context) (err error) {
		if machine, err = getMachine(ctx, namespace, name); err != nil {
			return err
		}
		if got := markOf(machine); got != node {
			return fmt.Errorf("it is marked for %q", got)
		}
		return nil
	})
	return machine
}

// runPlatform plays KubeVirt until the end of the test.
func runPlatform(t *testing.T, p *vmcrds.Platform) {
	t.Helper()
	p.Client = virtHandler
	go p.Run(t.Context())
}

// waitPolicy waits for a condition of a policy, and returns it.
func waitPolicy(t *testing.T, name, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	eventually(t, fmt.Sprintf("condition %s=%s of policy %s", condition, status, name), func(ctx context.Context) error {
		p := &v1alpha1.EvacuationPolicy{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, condition)
		if c == nil || c.Status != status || (reason != "" && c.Reason != reason) || p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("status: %+v", p.Status)
		}
		found = *c
		return nil
	})
	return found
}

// kubevirtReady makes the test parallel and waits until the preset works.
func kubevirtReady(t *testing.T) (namespace string, nodes []string) {
	t.Helper()
	shareManager(t)
	waitPolicy(t, "kubevirt", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	waitPolicy(t, "kubevirt-hotplug", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	namespace = kube.Namespace(t)
	return namespace, addNodes(t, namespace, 2)
}

// The table of "Handling Eviction Requests": final response of the first and of
// later calls, and the mark (kubevirt.md, section 1).
func TestKubeVirtEvictionTable(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	const (
		granted   = ""
		triggered = "Eviction triggered evacuation: waiting for interceptor"
		denied    = "the virtual machine has the eviction strategy LiveMigrate but is not live-migratable"
	)
	rows := map[string]struct {
		strategy string
		can      migratable
		want     string
		marked   bool
	}{
		"none-yes":     {"None", "True", granted, false},
		"none-no":      {"None", "False", granted, false},
		"live-yes":     {"LiveMigrate", "True", triggered, true},
		"live-no":      {"LiveMigrate", "False", denied, false},
		"possible-yes": {"LiveMigrateIfPossible", "True", triggered, true},
		"possible-no":  {"LiveMigrateIfPossible", "False", granted, false},
		"external-yes": {"External", "True", triggered, true},
		"external-no":  {"External", "False", triggered, true},
		"unset":        {"", "True", granted, false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			pod := createMachine(t, namespace, name, nodes[0], row.strategy, row.can)
			if row.want == granted {
				if got := evictUntilGranted(t, pod); got.code != http.StatusCreated {
					t.Errorf("want it granted, got %d: %s", got.code, got.body)
				}
				gone(t, pod)
				noRequest(t, pod)
				waitMark(t, namespace, name, "")
				return
			}
			first := evictUntil(t, "alice", pod, row.want)
			if first.code != http.StatusTooManyRequests {
				t.Errorf("first answer: want 429, got %d: %s", first.code, first.body)
			}
			if row.marked {
				waitMark(t, namespace, name, nodes[0])
			} else {
				noRequest(t, pod)
			}
			later := evict(t, "alice", pod, eviction(pod))
			if later.code != http.StatusTooManyRequests || !strings.Contains(string(later.body), row.want) {
				t.Errorf("later answer: want 429 with %q, got %d: %s", row.want, later.code, later.body)
			}
			lives(t, pod)
			if !row.marked {
				waitMark(t, namespace, name, "")
			}
		})
	}
}

// evictUntilGranted evicts until it is granted: the cache may lag behind a machine
// that was created a moment ago, and its guard may not be open yet.
func evictUntilGranted(t *testing.T, pod *corev1.Pod) rawAnswer {
	t.Helper()
	var got rawAnswer
	eventually(t, "the eviction of "+pod.Name+" to be granted", func(context.Context) error {
		if got = evict(t, "alice", pod, eviction(pod)); got.code == http.StatusTooManyRequests {
			return fmt.Errorf("%s", got.body)
		}
		return nil
	})
	return got
}

// The real kubectl drain, with the output of the seed but for the words.
func TestKubeVirtDrain(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	var mayMigrate atomic.Bool
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Evacuates: true, Proceed: func(string) bool { return mayMigrate.Load() }})
	pod := createMachine(t, namespace, "vm-cirros", nodes[0], "LiveMigrate", "True")
	mark := kube.RequestLog().Mark()
	drain := startDrain(t, "alice", nodes[0], "--delete-emptydir-data")
	waitLine(t, drain, "waiting for interceptor")
	lives(t, pod)
	mayMigrate.Store(true)
	result := finishWell(t, drain)
	saysAll(t, "standard error", result.Stderr, waitingFor(pod, kubevirtInterceptor, 1, 2))
	saysAll(t, "standard output", result.Stdout, "evicting pod "+namespace+"/virt-launcher-vm-cirros", "node/"+nodes[0]+" drained")
	gone(t, pod)
	machine := must(getMachine(t.Context(), namespace, "vm-cirros"))(t)
	if got := vmcrds.Text(machine, "status.nodeName"); got != nodes[1] {
		t.Errorf("the machine runs on %s, want %s", got, nodes[1])
	}
	// A refused patch has changed nothing: the machine changed while it was written.
	patches := machineWrites(t, mark, namespace, "vm-cirros").Where(func(r cluster.Request) bool { return r.Code != http.StatusUnprocessableEntity })
	if len(patches) != 2 {
		t.Errorf("want one mark and its removal, got %d:\n%s", len(patches), patches)
	}
}

// However often a drain asks, it is answered from memory.
func TestKubeVirtG9RepeatedCallsCostNothing(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	pod := createMachine(t, namespace, "vm", nodes[0], "External", "True")
	mark := kube.RequestLog().Mark()
	evictUntil(t, "alice", pod, "waiting for interceptor")
	waitMark(t, namespace, "vm", nodes[0])
	const calls = 50
	for range calls {
		if got := evict(t, "alice", pod, eviction(pod)); got.code != http.StatusTooManyRequests {
			t.Fatalf("want 429, got %d: %s", got.code, got.body)
		}
	}
	machine := since(t, mark).Where(func(r cluster.Request) bool {
		return r.User == drawbridge() && r.Namespace == namespace && r.Resource == "virtualmachineinstances"
	})
	if len(machine) > 2 { // The mark, and at most one look before it.
		t.Errorf("%d calls cost %d requests about the machine:\n%s", calls, len(machine), machine)
	}
	reads := since(t, mark).Where(func(r cluster.Request) bool {
		return r.User == drawbridge() && r.Verb == "get" && r.Namespace == namespace && r.Resource == "pods"
	})
	if len(reads) > 5 {
		t.Errorf("%d calls cost %d reads of the pod:\n%s", calls, len(reads), reads)
	}
}

// machineWrites are the patches of a machine by the manager.
func machineWrites(t *testing.T, mark cluster.Mark, namespace, name string) cluster.Requests {
	t.Helper()
	return since(t, mark).Where(func(r cluster.Request) bool {
		return r.User == drawbridge() && r.Verb == "patch" && r.Namespace == namespace && r.Name == name && r.Resource == "virtualmachineinstances"
	})
}

// A mark for another node is left over from a migration that crossed it. KubeVirt's
// webhook takes it for one of this pod, for ever.
func TestKubeVirtG11AStaleMarkIsReplaced(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "status.evacuationNodeName", nodes[1])
	})
	evictUntil(t, "alice", pod, kubevirtInterceptor)
	waitMark(t, namespace, "vm", nodes[0])
}

// A pod whose machine is gone does not hold up a drain.
func TestKubeVirtG3AMachineThatIsGoneHoldsUpNobody(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	orphan := builder.Pod(namespace, "virt-launcher-orphan").Node(nodes[0]).
		Label("kubevirt.io", "virt-launcher").Annotation("kubevirt.io/domain", "nobody").Obj()
	pod := createPod(t, orphan)
	evictUntilGranted(t, pod)
	gone(t, pod)
}

// While it is not known whether a machine can migrate, its evacuation waits.
func TestKubeVirtG4AStartingMachineIsWaitedFor(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Evacuates: true})
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "")
	evictUntil(t, "alice", pod, kubevirtInterceptor)
	waitRequest(t, pod, "waiting", says(kubevirtInterceptor, "it is not known yet whether the workload is migratable"))
	waitMark(t, namespace, "vm", "")
	lives(t, pod)
	setMachine(t, namespace, "vm", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "status.conditions", []any{map[string]any{"type": "LiveMigratable", "status": "True"}})
	})
	waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
}

// says wants a text in an interceptor's message.
func says(name, text string) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool {
		for _, i := range er.Status.Interceptors {
			if i.Name == name && strings.Contains(i.Message, text) {
				return true
			}
		}
		return false
	}
}

// setMachine changes a machine, however often somebody else does.
func setMachine(t *testing.T, namespace, name string, change func(*unstructured.Unstructured)) {
	t.Helper()
	eventually(t, "machine "+name+" to be changed", func(ctx context.Context) error {
		machine, err := getMachine(ctx, namespace, name)
		if err != nil {
			return err
		}
		change(machine)
		return virtHandler.Update(ctx, machine)
	})
}

// Uncordoning takes the mark back, deletes the migration, and the source of the
// eviction goes with it.
func TestKubeVirtG7UncordonCancels(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Evacuates: true, Proceed: func(string) bool { return false }})
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	drain := startDrain(t, "alice", nodes[0])
	waitMark(t, namespace, "vm", nodes[0])
	setMachine(t, namespace, "vm", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "metadata.annotations", map[string]any{"kubevirt.io/eviction-source": "descheduler"})
	})
	waitMigrations(t, namespace, 1)
	killed(t, drain)
	kubectl(t, "alice", "uncordon", nodes[0])
	machine := waitMark(t, namespace, "vm", "")
	if got := machine.GetAnnotations()["kubevirt.io/eviction-source"]; got != "" {
		t.Errorf("the source of the eviction is still %q", got)
	}
	waitMigrations(t, namespace, 0)
	lives(t, pod)
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
}

// waitMigrations waits until there are so many migrations.
func waitMigrations(t *testing.T, namespace string, n int) []unstructured.Unstructured {
	t.Helper()
	var items []unstructured.Unstructured
	eventually(t, fmt.Sprintf("%d migrations", n), func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(vmcrds.Migration)
		if err := admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if items = list.Items; len(items) != n {
			return fmt.Errorf("there are %d", len(items))
		}
		return nil
	})
	return items
}

// An evacuation that fails is given up after the retry limit, KubeVirt is stopped,
// and everybody can see it; the machine lives.
func TestKubeVirtG7GivesUp(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	runPlatform(t, &vmcrds.Platform{
		Namespace: namespace, Target: nodes[1], Evacuates: true, Backoff: 100 * time.Millisecond, Fail: func(string) bool { return true },
	})
	// KubeVirt has marked it: it makes the migrations, and the next one as soon as one has
	// failed.
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrateIfPossible", "True", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "status.evacuationNodeName", nodes[0])
	})
	evictUntil(t, "alice", pod, kubevirtInterceptor)
	er := waitRequest(t, pod, "in the hands of the interceptor", activeIs(kubevirtInterceptor))
	waitEvent(t, er, "EvacuationGivenUp")
	waitMark(t, namespace, "vm", "")
	if c := waitPolicy(t, "kubevirt", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonGaveUp); !strings.Contains(c.Message, namespace+"/vm") {
		t.Errorf("the condition does not name it: %s", c.Message)
	}
	lives(t, pod)
	for range 3 {
		if got := evict(t, "alice", pod, eviction(pod)); got.code != http.StatusTooManyRequests {
			t.Errorf("want 429, got %d: %s", got.code, got.body)
		}
	}
	lives(t, pod)
}
