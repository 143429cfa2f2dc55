//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// startIntercepted starts a manager whose requests pass by a test.
func startIntercepted(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) *manager.Manager {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := must(inst.Start(ctx, manager.Options{Change: withPresets(nil), Wrap: wrap}))(t)
	t.Cleanup(func() { m.StopFor(t) })
	waitPolicy(t, "kubevirt", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	return m
}

// KubeVirt's webhook lets an eviction through when it cannot read the pod. Here the
// reads that an allowed eviction rests on fail, one after the other.
func TestKubeVirtG1ReadsThatFailLetNobodyThrough(t *testing.T) {
	var broken atomic.Value
	broken.Store("")
	startIntercepted(t, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if what := broken.Load().(string); what != "" && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, what) {
				return nil, fmt.Errorf("the test broke %s", r.URL.Path)
			}
			return next.RoundTrip(r)
		})
	})
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrateIfPossible", "False")
	for _, what := range []string{"/virtualmachineinstances/vm", "/pods/" + pod.Name} {
		broken.Store(what)
		got := evictUntil(t, "alice", pod, "could not be coordinated yet")
		if got.code != http.StatusTooManyRequests {
			t.Errorf("%s cannot be read: want 429, got %d", what, got.code)
		}
		lives(t, pod)
	}
	broken.Store("")
	evictUntilGranted(t, pod)
	gone(t, pod)
}

// The machine moves between the look at it and its mark. KubeVirt's webhook leaves
// the mark of a node that the machine has left, and denies every later eviction.
func TestKubeVirtG2AMachineThatMovesMeanwhileIsNotMarked(t *testing.T) {
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	var refused atomic.Int64
	startIntercepted(t, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			mark := r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/"+namespace+"/virtualmachineinstances/vm")
			if mark && refused.Load() == 0 {
				machine, err := getMachine(r.Context(), namespace, "vm")
				if err != nil {
					return nil, err
				}
				vmcrds.Set(machine, "status.nodeName", nodes[1])
				vmcrds.Set(machine, "status.migrationState", map[string]any{"completed": true, "sourceNode": nodes[0], "targetNode": nodes[1]})
				if err := virtHandler.Update(r.Context(), machine); err != nil {
					return nil, err
				}
			}
			response, err := next.RoundTrip(r)
			if mark && err == nil && response.StatusCode == http.StatusUnprocessableEntity {
				refused.Add(1)
			}
			return response, err
		})
	})
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	// The next answer may come when the pod is gone.
	evictUntil(t, "alice", pod, "Eviction triggered evacuation")
	waitRequest(t, pod, "past the interceptor", says(kubevirtInterceptor, "has left the pod"))
	waitMark(t, namespace, "vm", "")
	// The second is of a manager that has not yet seen the move. All further ones would have to wait.
	if n := refused.Load(); n < 1 || n > 2 {
		t.Errorf("want one mark that is refused, or two, got %d", n)
	}
	gone(t, pod)
}

// A machine without annotations gets the one that tells who wants it away.
func TestKubeVirtG5TheDeschedulerIsNamed(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	deschedule := newDescheduler(t, namespace)
	bare := createMachine(t, namespace, "bare", nodes[0], "LiveMigrate", "True", func(m *unstructured.Unstructured) { m.SetAnnotations(nil) })
	annotated := createMachine(t, namespace, "annotated", nodes[0], "LiveMigrate", "True")
	evictUntil(t, "alice", annotated, kubevirtInterceptor)
	waitMark(t, namespace, "annotated", nodes[0])
	eventually(t, "the descheduler to hear that the eviction goes on", func(context.Context) error {
		if !deschedule(bare) {
			return fmt.Errorf("it counts as failed")
		}
		return nil
	})
	machine := waitMark(t, namespace, "bare", nodes[0])
	if got := machine.GetAnnotations()["kubevirt.io/eviction-source"]; got != "descheduler" {
		t.Errorf("source of the eviction: want descheduler, got %q", got)
	}
	if !deschedule(bare) || !deschedule(annotated) {
		t.Error("a later eviction counts as failed")
	}
	machine = must(getMachine(t.Context(), namespace, "annotated"))(t)
	if got := machine.GetAnnotations()["kubevirt.io/eviction-source"]; got != "" {
		t.Errorf("who was first wants it urgently, but the source is %q", got)
	}
}

// While Drawbridge is away, evictions of machines are a 429 that drains repeat, not
// the 500 that ends them: of one that nobody has asked about, of one that is being
// evacuated, and of one whose evacuation was given up. Then all of them go on.
func TestKubeVirtG6AnOutageOfOursShutsNoMachineDown(t *testing.T) {
	m, labels := startGuarded(t, nil)
	waitPolicy(t, "kubevirt", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	var repaired atomic.Bool
	runPlatform(t, &vmcrds.Platform{
		Namespace: namespace, Target: nodes[1], Evacuates: true,
		Fail:    func(name string) bool { return name == "stuck" && !repaired.Load() },
		Proceed: func(name string) bool { return name == "stuck" || repaired.Load() },
	})
	untouched := createMachine(t, namespace, "untouched", nodes[0], "LiveMigrate", "True")
	moving := createMachine(t, namespace, "moving", nodes[0], "LiveMigrate", "True")
	stuck := createMachine(t, namespace, "stuck", nodes[0], "LiveMigrate", "True", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "status.evacuationNodeName", nodes[0]) // KubeVirt tries at once again.
	})
	fixed := createMachine(t, namespace, "fixed", nodes[0], "LiveMigrate", "False")
	free := createMachine(t, namespace, "free", nodes[0], "None", "True")
	evictUntil(t, "alice", moving, kubevirtInterceptor)
	evictUntil(t, "alice", stuck, kubevirtInterceptor)
	waitMark(t, namespace, "moving", nodes[0])
	waitEvent(t, waitRequest(t, stuck, "in the hands of the interceptor", activeIs(kubevirtInterceptor)), "EvacuationGivenUp")
	// A native requester gets past the interceptor, but not past the guard.
	declined := createMachine(t, namespace, "declined", nodes[1], "LiveMigrate", "False")
	create(t, builder.EvictionRequest(namespace, declined.Name, declined.UID).Requesters("native.example.com").Obj())
	waitEvent(t, waitRequest(t, declined, "past the interceptor", activeIs(v1alpha1.ImperativeEvictionInterceptor)), "GuardHeld")
	pods := map[string]*corev1.Pod{"untouched": untouched, "moving": moving, "stuck": stuck, "fixed": fixed, "declined": declined}
	refuse := func(when string) {
		t.Helper()
		for name, pod := range pods {
			for range 5 {
				if got := evict(t, "alice", pod, eviction(pod)); got.code != http.StatusTooManyRequests {
					t.Errorf("%s: machine %s: want 429, got %d: %s", when, name, got.code, got.body)
				}
			}
			lives(t, pod)
		}
	}
	for _, pod := range pods {
		waitGuard(t, pod, true)
	}
	waitGuard(t, free, false)
	refuse("with us")
	outage(t, m)
	refuse("without us")
	drain := startDrain(t, "alice", nodes[0])
	waitLine(t, drain, `error when evicting pods/"virt-launcher-untouched" -n "`+namespace+`" (will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget.`)
	gone(t, free)

	back(t, nil, untouched, labels)
	refuse("with us again")
	repaired.Store(true)
	setMachine(t, namespace, "fixed", func(m *unstructured.Unstructured) {
		vmcrds.Set(m, "status.conditions", []any{map[string]any{"type": "LiveMigratable", "status": "True"}})
	})
	// To try again, as the guide says.
	failed := &unstructured.Unstructured{}
	failed.SetGroupVersionKind(vmcrds.Migration)
	if err := admin.DeleteAllOf(t.Context(), failed, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	result := finishWell(t, drain)
	saysAll(t, "standard output", result.Stdout, "node/"+nodes[0]+" drained")
	lives(t, declined)
	for name := range pods {
		machine := must(getMachine(t.Context(), namespace, name))(t)
		if got := vmcrds.Text(machine, "status.nodeName"); got != nodes[1] {
			t.Errorf("machine %s runs on %q, want %q", name, got, nodes[1])
		}
	}
}

// A manager that starts knows the pods before the machines. The guards of machines
// that may go are open again, or still, when it knows both.
func TestKubeVirtGuardsAfterARestart(t *testing.T) {
	m := startManager(t, nil)
	waitPolicy(t, "kubevirt", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 1)
	live := createMachine(t, namespace, "live", nodes[0], "LiveMigrate", "True")
	none := createMachine(t, namespace, "none", nodes[0], "None", "True")
	waitGuard(t, live, true)
	waitGuard(t, none, false)
	m.StopFor(t)
	startManager(t, nil)
	if got := evictUntilGranted(t, none); got.code != http.StatusCreated {
		t.Errorf("want it granted, got %d: %s", got.code, got.body)
	}
	gone(t, none)
	waitGuard(t, live, true)
}
