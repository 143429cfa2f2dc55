//go:build unix

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// setLabel puts the guard's label on a pod, or takes it off, as somebody else would.
func setLabel(t *testing.T, pod *corev1.Pod, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.GuardLabel, value)
	if err := admin.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// noGuard wants that the guard of a pod is open now.
func noGuard(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
		t.Fatal(err)
	}
	if now.Labels[v1alpha1.GuardLabel] != "" {
		t.Errorf("pod %s has a guard: %v", pod.Name, now.Labels)
	}
}

// Always, WhileEvacuating, Never, and an interceptor that evicts: up to the eviction,
// and in an outage.
func TestTheGuardDoesWhatRegistrationsWant(t *testing.T) {
	m, _ := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	always, while, never, evicts := nameIn(namespace, "always"), nameIn(namespace, "while"), nameIn(namespace, "never"), nameIn(namespace, "evicts")
	registered := func(name, app string) *builder.EvictionInterceptorWrapper {
		return builder.EvictionInterceptor(name).InNamespace(namespace).Pods(builder.AppLabel, app)
	}
	register(t, registered(always, "always").Guard(v1alpha1.GuardAlways))
	register(t, registered(while, "while").Priority(20000))
	register(t, registered(never, "never").Guard(v1alpha1.GuardNever))
	// The second of the pods of the one before.
	register(t, registered(evicts, "while").Evicts().ActedBy(namespace, "mover"))
	mover := newAccount(t, namespace, "mover", mayReport(), mayEvict())
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"always-0", "always-1", "while-0", "while-1", "never-0", "never-1"} {
		pods[name] = createPod(t, builder.Pod(namespace, name).Node(node).Change(ofApp(name[:len(name)-2])).Obj())
	}

	waitGuard(t, pods["always-0"], true)
	waitGuard(t, pods["always-1"], true)
	noRequest(t, pods["always-0"])
	noGuard(t, pods["while-0"])
	for _, name := range []string{"always-0", "while-0", "never-0"} {
		evict(t, "heidi", pods[name], eviction(pods[name]))
	}
	waitGuard(t, pods["while-0"], true)
	waitRequest(t, pods["never-0"], "in the hands of its interceptor", activeIs(never))
	noGuard(t, pods["never-0"])

	complete(t, pods["while-0"], while, m.Clock.Now)
	waitRequest(t, pods["while-0"], "in the hands of the one that evicts", activeIs(evicts))
	waitGuard(t, pods["while-0"], false)
	byUID := eviction(pods["while-0"])
	byUID.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &pods["while-0"].UID}
	eventually(t, "the one that evicts to do so", func(context.Context) error {
		if code, text := mover.evict(t, byUID); code != http.StatusCreated {
			return fmt.Errorf("it is answered %d %s", code, text)
		}
		return nil
	})
	gone(t, pods["while-0"])
	complete(t, pods["always-0"], always, m.Clock.Now)
	complete(t, pods["never-0"], never, m.Clock.Now)
	gone(t, pods["always-0"])
	gone(t, pods["never-0"])

	outage(t, m)
	want := map[string]int{"always-1": http.StatusTooManyRequests, "while-1": http.StatusCreated, "never-1": http.StatusCreated}
	got := map[string]int{}
	for name := range want {
		got[name] = evict(t, "heidi", pods[name], eviction(pods[name])).code
	}
	if !maps.Equal(want, got) {
		t.Errorf("evictions that begin in an outage: want %v, got %v", want, got)
	}
}

// A pod that is born while we are away is counted as unguarded until it has its
// label.
func TestPodsBornInAnOutageAreCounted(t *testing.T) {
	m, _ := startGuarded(t, onlyTheGuard)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	register(t, builder.EvictionInterceptor(nameIn(namespace, "always")).InNamespace(namespace).Guard(v1alpha1.GuardAlways))
	before := createPod(t, builder.Pod(namespace, "before").Node(node).Obj())
	waitGuard(t, before, true)

	outage(t, m)
	meanwhile := createPod(t, builder.Pod(namespace, "meanwhile").Node(node).Obj())
	labels := &labelStop{}
	labels.stop()
	m = back(t, onlyTheGuard, before, labels)
	eventually(t, "the metric to count it", func(context.Context) error {
		if n := guardMetric(t, m, "unguarded"); n != 1 {
			return fmt.Errorf("unguarded is %d", n)
		}
		return nil
	})
	noGuard(t, meanwhile)
	labels.release()
	waitGuard(t, meanwhile, true)
	eventually(t, "the metric to count it no more", func(context.Context) error {
		if n := guardMetric(t, m, "unguarded"); n != 0 {
			return fmt.Errorf("unguarded is %d", n)
		}
		return nil
	})
}

// Whatever somebody does to labels and budgets, they become again what the state of
// the eviction says. Where the webhook is not asked, nothing is guarded.
func TestTheGuardIsRestored(t *testing.T) {
	startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	register(t, builder.EvictionInterceptor(nameIn(namespace, "always")).Pods("guarded-by", namespace).Guard(v1alpha1.GuardAlways))
	excluded := createPod(t, builder.Pod(metav1.NamespaceSystem, namespace).Node(node).Label("guarded-by", namespace).Obj())
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), excluded, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	})
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Label("guarded-by", namespace).Obj())
	plain := createPod(t, builder.Pod(namespace, "web-0").Node(node).Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj())
	waitGuard(t, pod, true)
	waitGuard(t, plain, false)

	setLabel(t, pod, "null")
	waitGuard(t, pod, true)
	setLabel(t, pod, `"open"`)
	waitGuard(t, pod, true)
	setLabel(t, plain, `"closed"`)
	waitGuard(t, plain, false)

	budget := func(ctx context.Context) (*policyv1.PodDisruptionBudget, error) {
		pdb := &policyv1.PodDisruptionBudget{}
		return pdb, admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.GuardBudgetName}, pdb)
	}
	first := must(budget(t.Context()))(t)
	if first.Labels[v1alpha1.GuardBudgetLabel] != "true" {
		t.Errorf("alerts cannot tell the budget: labels %v", first.Labels)
	}
	changed := first.DeepCopy()
	changed.Spec.MinAvailable.IntVal = 0
	if err := admin.Patch(t.Context(), changed, client.MergeFrom(first)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget to be repaired", func(ctx context.Context) error {
		if pdb, err := budget(ctx); err != nil || pdb.Spec.MinAvailable.IntVal != first.Spec.MinAvailable.IntVal {
			return fmt.Errorf("%v, error %w", pdb.Spec, err)
		}
		return nil
	})
	if err := admin.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget to be made again", func(ctx context.Context) error {
		if pdb, err := budget(ctx); err != nil || pdb.UID == first.UID {
			return fmt.Errorf("UID %s, error %w", pdb.UID, err)
		}
		return nil
	})

	noGuard(t, excluded)
	none := &policyv1.PodDisruptionBudget{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: v1alpha1.GuardBudgetName}, none); !apierrors.IsNotFound(err) {
		t.Errorf("kube-system has a guard: error %v", err)
	}
}

// While a migration runs, both pods of the machine are protected, and the source
// while it is being left.
func TestTheGuardCoversBothPodsOfAMigration(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	source := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	waitGuard(t, source, true)
	evictUntil(t, "alice", source, "Eviction triggered evacuation: waiting for interceptor")
	waitMark(t, namespace, "vm", nodes[0])
	machine := must(getMachine(t.Context(), namespace, "vm"))(t)
	target := createPod(t, launcher(machine, "virt-launcher-vm-target", nodes[1]))
	waitGuard(t, target, true)
	waitGuard(t, source, true)

	setMachine(t, namespace, "vm", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "status.nodeName", nodes[1])
		vmcrds.Set(m, "status.migrationState", map[string]any{"completed": true, "sourceNode": nodes[0], "targetNode": nodes[1], "endTimestamp": "2026-01-01T00:00:00Z"})
	})
	waitGuard(t, target, true)
	evictUntilGranted(t, source)
	gone(t, source)
	waitGuard(t, target, true)
}

// A surged pod without a budget of its own is guarded while its replacement starts.
// Handing it up and giving it back change its labels, too.
func TestTheGuardAndTheSurgeShareAPod(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]
	if err := admin.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	rebalancer := newNative(t, a.namespace, "rebalancer", "rebalancer.example.com")
	kubectl(t, "alice", "cordon", a.node) // No room for the replacement yet.
	rebalancer.apply(t, pod, true)
	a.waitHandedUp(t, pod)
	waitGuard(t, pod, true)
	rebalancer.apply(t, pod, false)
	a.waitGivenBack(t, pod)
	waitGuard(t, pod, false)

	canceled := waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))
	if err := admin.Delete(t.Context(), canceled); err != nil {
		t.Fatal(err)
	}
	rebalancer.apply(t, pod, true)
	a.waitHandedUp(t, pod)
	waitGuard(t, pod, true)
	addNodes(t, a.namespace, 1)
	gone(t, pod)
	a.untouched(t)
}
