//go:build unix

package kubevirt

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// interceptor is the one of the preset.
const interceptor = "kubevirt.drawbridge.dev"

// testLabel is on the nodes of a test; its value is the test's namespace.
const testLabel = "kubevirt.drawbridge.dev/test"

func encode(content []byte) string { return base64.StdEncoding.EncodeToString(content) }

// must returns a value, or ends the test.
func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

// eventually waits for what KubeVirt has to do, unless it runs no more.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	cluster.Eventually(t, what, func(ctx context.Context) error {
		if err := programs.StillRun(); err != nil {
			return waiting.InVain(err)
		}
		return check(ctx)
	})
}

// isTrue wants that a condition is True.
var isTrue = cluster.IsTrue

// waitReady waits until a policy of the preset works.
func waitReady(t *testing.T, policy string) {
	t.Helper()
	eventually(t, "policy "+policy+" to be Ready", func(ctx context.Context) error {
		p := &v1alpha1.EvacuationPolicy{}
		if err := admin.Get(ctx, client.ObjectKey{Name: policy}, p); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("status %+v", p.Status)
		}
		return nil
	})
}

// addNodes adds nodes on which KubeVirt schedules the machines of one namespace.
func addNodes(t *testing.T, namespace string, n int) []string {
	t.Helper()
	return must(kube.AddNodes(t.Context(), n, func(node *corev1.Node) {
		node.Labels[testLabel] = namespace
		for _, label := range []string{"kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35"} {
			node.Labels[label] = "true" // As virt-handler says of its node.
		}
		for _, resources := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
			resources[corev1.ResourceEphemeralStorage] = resource.MustParse("1Ti") // Launchers ask for some.
		}
	}))(t)
}

// createMachine has KubeVirt run a machine on a node, and returns its launcher.
func createMachine(t *testing.T, namespace, name, node, strategy string) *corev1.Pod {
	t.Helper()
	createMachines(t, namespace, node, strategy, name)
	return launcher(t, namespace, name, node)
}

// createMachines has KubeVirt run machines on a node.
func createMachines(t *testing.T, namespace, node, strategy string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := admin.Create(t.Context(), newMachine(namespace, name, node, strategy)); err != nil {
			t.Fatalf("create machine %s: %v", name, err)
		}
	}
	for _, name := range names {
		waitMachine(t, namespace, name, "to run on "+node, func(m *unstructured.Unstructured) bool {
			return vmcrds.Text(m, "status.phase") == "Running" && vmcrds.Text(m, "status.nodeName") == node
		})
	}
}

// newMachine is a machine that prefers a node, and can only run on those of its test.
func newMachine(namespace, name, node, strategy string) *unstructured.Unstructured {
	fields := map[string]any{
		"spec.architecture":                  "amd64",
		"spec.nodeSelector":                  map[string]any{testLabel: namespace},
		"spec.terminationGracePeriodSeconds": int64(0),
		"spec.domain.devices":                map[string]any{"autoattachPodInterface": false},
		"spec.domain.cpu.model":              "host-passthrough", // Or nodes would need the labels of CPU models.
		"spec.domain.resources.requests":     map[string]any{"memory": "64Mi"},
		"spec.affinity.nodeAffinity": map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
			"weight": int64(100),
			"preference": map[string]any{"matchExpressions": []any{
				map[string]any{"key": corev1.LabelHostname, "operator": "In", "values": []any{node}},
			}},
		}}},
	}
	if strategy != "" {
		fields["spec.evictionStrategy"] = strategy
	}
	return vmcrds.New(vmcrds.Machine, namespace, name, fields)
}

// launcher is the pod in which a machine runs on a node.
func launcher(t *testing.T, namespace, name, node string) *corev1.Pod {
	t.Helper()
	for _, pod := range must(pods(t.Context(), namespace))(t) {
		if pod.Annotations["kubevirt.io/domain"] == name && pod.Spec.NodeName == node && pod.Status.Phase == corev1.PodRunning {
			return &pod
		}
	}
	t.Fatalf("machine %s has no launcher on %s", name, node)
	return nil
}

func getMachine(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	machine := vmcrds.New(vmcrds.Machine, namespace, name, nil)
	return machine, admin.Get(ctx, client.ObjectKeyFromObject(machine), machine)
}

// waitMachine waits until a machine is as wanted, and returns it.
func waitMachine(t *testing.T, namespace, name, what string, wanted func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	var machine *unstructured.Unstructured
	eventually(t, "machine "+name+" "+what, func(ctx context.Context) (err error) {
		if machine, err = getMachine(ctx, namespace, name); err != nil {
			return err
		}
		if !wanted(machine) {
			return fmt.Errorf("annotations %v, status %v", machine.GetAnnotations(), machine.Object["status"])
		}
		return nil
	})
	return machine
}

// runsOn waits until the machine has moved.
func runsOn(t *testing.T, namespace, name, node string) {
	t.Helper()
	waitMachine(t, namespace, name, "to have moved to "+node, func(m *unstructured.Unstructured) bool {
		return vmcrds.Text(m, "status.nodeName") == node && vmcrds.Text(m, "status.phase") == "Running"
	})
}

// unmarked waits until nobody wants the machine away any more.
func unmarked(t *testing.T, namespace, name string) {
	t.Helper()
	waitMachine(t, namespace, name, "to have no mark", func(m *unstructured.Unstructured) bool {
		return m.GetAnnotations()["drawbridge.dev/evacuate-node"] == "" && vmcrds.Text(m, "status.evacuationNodeName") == ""
	})
}

// migrations of a namespace, oldest first.
func migrations(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(vmcrds.Migration)
	err := admin.List(ctx, list, client.InNamespace(namespace))
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	return list.Items, err
}

// phases are those of migrations.
func phases(items []unstructured.Unstructured) []string {
	var all []string
	for i := range items {
		all = append(all, vmcrds.Text(&items[i], "status.phase"))
	}
	return all
}

// waitPhases waits until the migrations of a namespace are in these phases.
func waitPhases(t *testing.T, namespace string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the migrations to be %v", want), func(ctx context.Context) error {
		items, err := migrations(ctx, namespace)
		if err != nil {
			return err
		}
		if got := phases(items); !slices.Equal(got, want) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
}

// noneUnfinished waits until no migration of a namespace is under way.
func noneUnfinished(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "all migrations to have ended", func(ctx context.Context) error {
		items, err := migrations(ctx, namespace)
		if err != nil {
			return err
		}
		for _, phase := range phases(items) {
			if phase != "Succeeded" && phase != "Failed" {
				return fmt.Errorf("they are %v", phases(items))
			}
		}
		return nil
	})
}

// waitRequest waits until the request for a pod is as wanted, and returns it.
func waitRequest(t *testing.T, pod *corev1.Pod, what string, wanted func(*v1alpha1.EvictionRequest) bool) *v1alpha1.EvictionRequest {
	t.Helper()
	return cluster.WaitRequest(t, admin, pod, what, func(er *v1alpha1.EvictionRequest) bool {
		if err := programs.StillRun(); err != nil {
			t.Fatal(err)
		}
		return wanted(er)
	})
}

// lives fails the test unless the very pod still runs.
func lives(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
		t.Errorf("pod %s: %v", pod.Name, err)
		return
	}
	if now.UID != pod.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning {
		t.Errorf("pod %s: want it to run on, got UID %s (was %s), phase %s, deleted %v", pod.Name, now.UID, pod.UID, now.Status.Phase, now.DeletionTimestamp)
	}
}

// gone waits until the very pod is no more, or has ended.
func gone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" to go", func(ctx context.Context) error {
		now := &corev1.Pod{}
		err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now)
		ended := now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed
		if apierrors.IsNotFound(err) || err == nil && (now.UID != pod.UID || ended) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is there, %s, deleted %v", now.Status.Phase, now.DeletionTimestamp)
	})
}

// since returns what the API server was asked since the mark.
func since(t *testing.T, mark cluster.Mark) cluster.Requests {
	t.Helper()
	return must(kube.RequestLog().Since(t.Context(), mark))(t)
}
