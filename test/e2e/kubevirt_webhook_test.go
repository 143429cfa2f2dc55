//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// runTheirWebhooks installs KubeVirt's webhooks for evictions until the end of the test,
// and waits until the API server calls them.
func runTheirWebhooks(t *testing.T, namespace, node string) *vmcrds.EvictionWebhooks {
	t.Helper()
	w := &vmcrds.EvictionWebhooks{Client: virtAPI, Namespace: namespace}
	if err := w.Start(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := w.Remove(context.Background(), admin); err != nil {
			t.Error(err)
		}
		w.Close()
	})
	asked := createMachine(t, namespace, "fixed", node, "LiveMigrate", "False")
	eventually(t, "the API server to call KubeVirt's webhooks", func(context.Context) error {
		before := w.Calls()
		if got := evict(t, "alice", asked, eviction(asked)); got.code != http.StatusTooManyRequests || w.Calls() == before {
			return fmt.Errorf("%d calls, answer %d: %s", w.Calls(), got.code, got.body)
		}
		return nil
	})
	return w
}

// removeTheirWebhooks takes them away, as the hand-over does, and waits until the API
// server calls them no more.
func removeTheirWebhooks(t *testing.T, w *vmcrds.EvictionWebhooks) {
	t.Helper()
	if err := w.Remove(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	asked := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "virt-launcher-fixed"}, asked); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server to call KubeVirt's webhooks no more", func(context.Context) error {
		before := w.Calls()
		if got := evict(t, "alice", asked, eviction(asked)); got.code != http.StatusTooManyRequests {
			t.Errorf("a machine that cannot migrate: want 429, got %d: %s", got.code, got.body)
		}
		if w.Calls() != before {
			return fmt.Errorf("they are called")
		}
		return nil
	})
}

// The hand-over: a node is drained with KubeVirt's webhooks in place, then they are taken
// away, and the next node is drained without them. Both deny, both may mark, and nobody
// waits for the other: each time there is one mark and one migration of each machine, no
// 500, and the drain ends. A pod with a hotplugged volume goes when its machine has gone.
func TestKubeVirtDrainsWithItsWebhooksAndWithout(t *testing.T) {
	shareManager(t)
	takeMigrations(t)
	waitPolicy(t, "kubevirt", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	waitPolicy(t, "kubevirt-hotplug", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 3)
	theirs := runTheirWebhooks(t, namespace, nodes[2])
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[2], Evacuates: true})
	mark := kube.RequestLog().Mark()
	for i, when := range []string{"with", "without"} {
		if when == "without" {
			removeTheirWebhooks(t, theirs)
		}
		marks := theirs.Marks()
		pods := map[string]*corev1.Pod{}
		for name, strategy := range map[string]string{"live": "LiveMigrate", "possible": "LiveMigrateIfPossible", "none": "None"} {
			name += "-" + when
			pods[name] = createMachine(t, namespace, name, nodes[i], strategy, "True")
		}
		plug := createPod(t, builder.Pod(namespace, "hp-volume-"+when).Node(nodes[i]).Label("kubevirt.io", "hotplug-disk").
			Owner(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pods["live-"+when].Name, UID: pods["live-"+when].UID}).Obj())
		drain := startDrain(t, "alice", nodes[i])
		result := finishWell(t, drain)
		saysAll(t, "standard output", result.Stdout, "node/"+nodes[i]+" drained")
		gone(t, plug)
		for _, name := range []string{"live-" + when, "possible-" + when} {
			waitRequest(t, pods[name], "Evicted", isTrue(v1alpha1.ConditionEvicted))
			machine := must(getMachine(t.Context(), namespace, name))(t)
			if got := vmcrds.Text(machine, "status.nodeName"); got != nodes[2] {
				t.Errorf("machine %s runs on %q, want %q", name, got, nodes[2])
			}
			if writes := machineWrites(t, mark, namespace, name); len(writes) > 2 {
				t.Errorf("machine %s: want at most one mark of ours and its removal, got:\n%s", name, writes)
			}
		}
		if migrations := waitMigrations(t, namespace, 2*(i+1)); len(migrations) != 2*(i+1) {
			t.Errorf("%s: want one migration for each machine, got %d", when, len(migrations))
		}
		if marked := theirs.Marks() > marks; marked != (when == "with") {
			t.Errorf("%s KubeVirt's webhooks: they have marked something: %t", when, marked)
		}
	}
	for _, r := range since(t, mark) {
		if r.Subresource == "eviction" && r.Namespace == namespace && r.Code >= http.StatusInternalServerError {
			t.Errorf("want no such answer: %v", r)
		}
	}
}

// A platform that is installed after its policy is found.
func TestAPlatformThatIsInstalledLater(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	p := &v1alpha1.EvacuationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: v1alpha1.EvacuationPolicySpec{
		Workload: &v1alpha1.WorkloadReference{APIVersion: "late.example.com/v1", Kind: "Box", Name: "'box'"},
		Strategy: "workload.spec.strategy", Evacuating: "false",
	}}
	p = ownPolicy(t, namespace, p, nil)
	waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonKindNotInstalled)
	pod := createPod(t, builder.Pod(namespace, "box").Node(node).Label("kubevirt.io", "of-"+namespace).Obj())
	got := evictUntil(t, "alice", pod, "Eviction could not be coordinated yet")
	if got.code != http.StatusTooManyRequests {
		t.Errorf("before: want 429, got %d", got.code)
	}
	lives(t, pod)
	if err := vmcrds.Install(t.Context(), admin, vmcrds.Late()); err != nil {
		t.Fatal(err)
	}
	waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	create(t, vmcrds.New(vmcrds.Box, namespace, "box", map[string]any{"spec.strategy": "None"}))
	evictUntilGranted(t, pod)
	if _, err := getRequest(t.Context(), pod); !apierrors.IsNotFound(err) {
		t.Errorf("want no request, got %v", err)
	}
}
