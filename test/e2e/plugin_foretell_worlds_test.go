//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// foretellWait is the evacuationWait of the manager of these tests.
const foretellWait = 3 * time.Minute

// foretellWorld is a state of the cluster around one pod, which is made once for a call
// and once for a drain.
type foretellWorld struct {
	// namespace of the pod; that of the test if empty.
	namespace string
	pod       func(*builder.PodWrapper)
	// create makes the pod in another way.
	create func(t *testing.T, namespace, name, node string) *corev1.Pod
	// then brings about what is special.
	then func(t *testing.T, pod *corev1.Pod)
	// drained says what a drain is to do with it, as the plan says it.
	drained string
	// unasked says so where the API server is not asked, if that is less.
	unasked string
}

// foretellWorlds are those in which a manager runs and the webhook is there.
func foretellWorlds(silent string) map[string]foretellWorld {
	intercept := func(w *builder.PodWrapper) { w.Interceptors(silent) }
	budget := func(name string) func(t *testing.T, pod *corev1.Pod) {
		return func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			create(t, builder.Budget(pod.Namespace, name+"-"+pod.Name).Selects("app", pod.Name).MaxUnavailable("0").Obj())
			eventually(t, "the budget to be counted", func(ctx context.Context) error {
				pdb := &policyv1.PodDisruptionBudget{}
				if err := admin.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name + "-" + pod.Name}, pdb); err != nil {
					return err
				}
				if pdb.Status.ObservedGeneration < pdb.Generation || pdb.Status.CurrentHealthy == 0 {
					return fmt.Errorf("status %+v", pdb.Status)
				}
				return nil
			})
		}
	}
	ask := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		evict(t, "carol", pod, eviction(pod))
		waitRequest(t, pod, "intercepted", activeIs(silent))
	}
	cancel := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		ask(t, pod)
		plugin(t, "cancel", "pod/"+pod.Name, "-n", pod.Namespace)
		waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))
	}
	both := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		budget("one")(t, pod)
		budget("two")(t, pod)
	}
	// The successor of such a pod has its name, so calls are answered by the webhook to the
	// end. The collector does not know the kind, and lets the pod be.
	named := func(w *builder.PodWrapper) {
		intercept(w)
		w.Owner(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "PodSet", Name: "db", UID: "db-1", Controller: new(true)})
	}
	last := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		ask(t, pod)
		complete(t, pod, silent, time.Now)
	}
	lastBlocked := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		createBudget(t, builder.Budget(pod.Namespace, "quorum-"+pod.Name).Selects("app", pod.Name).MinAvailable("1").Obj(), 1)
		last(t, pod)
		waitRequest(t, pod, "blocked", blocked)
	}
	lastEnding := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		last(t, pod)
		eventually(t, "the pod to terminate", func(ctx context.Context) error {
			now := &corev1.Pod{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
				return err
			}
			if now.DeletionTimestamp == nil {
				return errors.New("it does not")
			}
			return nil
		})
		evictUntil(t, "carol", pod, "the pod is terminating") // The replica has seen it.
	}
	// The budget would allow the eviction, had it not allowed another one that has come to
	// nothing: it counts that pod as gone for two minutes, from a time that is still to come,
	// because the test may take longer.
	stale := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		mate := createPod(t, builder.Pod(pod.Namespace, "mate-of-"+pod.Name).Node(addNodes(t, pod.Namespace, 1)[0]).Label("app", pod.Name).Obj())
		t.Cleanup(func() { clearPod(t, mate) })
		budget := createBudget(t, builder.Budget(pod.Namespace, "stale-"+pod.Name).Selects("app", pod.Name).MinAvailable("1").Obj(), 2)
		budget.Status.DisruptedPods = map[string]metav1.Time{mate.Name: metav1.NewTime(time.Now().Add(time.Hour))}
		budget.Status.DisruptionsAllowed = 0
		if err := admin.Status().Update(t.Context(), budget); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the budget to count the eviction that has come to nothing", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
				return err
			}
			if budget.Status.CurrentHealthy != 1 || budget.Status.DisruptionsAllowed != 0 {
				return fmt.Errorf("status %+v", budget.Status)
			}
			return nil
		})
	}
	machine := func(t *testing.T, namespace, name, node string) *corev1.Pod {
		t.Helper()
		pod := createMachine(t, namespace, name, node, "LiveMigrate", "False")
		dry := eviction(pod)
		dry.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		eventually(t, "the webhook to know the machine", func(context.Context) error {
			if got := evict(t, "carol", pod, dry); !strings.Contains(got.header.Get("Warning"), "not live-migratable") {
				return fmt.Errorf("it is answered %d %v %s", got.code, got.header, got.body)
			}
			return nil
		})
		return pod
	}
	uncovered := func(w *builder.PodWrapper) { w.Interceptors(silent, kubevirtInterceptor) }
	return map[string]foretellWorld{
		"machine": {
			create:  machine,
			drained: "be evicted after " + kubevirtInterceptor + "; currently it is refused: the virtual machine has the eviction strategy LiveMigrate but is not live-migratable",
			unasked: "be evicted after " + kubevirtInterceptor,
		},
		"held": {pod: uncovered, then: func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			ask(t, pod)
			complete(t, pod, silent, time.Now)
			waitRequest(t, pod, "in the hands of an interceptor whose policies do not cover it", activeIs(kubevirtInterceptor))
			plugin(t, "skip", pod.Name, kubevirtInterceptor, "-n", pod.Namespace, "--reason=nobody covers it")
			evictUntil(t, "carol", pod, "the guard of the pod is closed")
		}, drained: "be evicted, as is requested already; currently it is refused: the guard of the pod is closed", unasked: "be evicted, as is requested already"},
		"last-blocked": {pod: named, then: lastBlocked, drained: "be evicted, as is requested already; budget quorum-last-blocked-1 can never allow a disruption (minAvailable is 1 of 1 pod)"},
		"last-ending":  {pod: func(w *builder.PodWrapper) { named(w); w.Finalizer(drainHolder) }, then: lastEnding, drained: "be waited for: it is being deleted"},
		"stale-budget": {then: stale, drained: "be left to its owner for 3m0s (maintenance.evacuationWait), then be evicted; currently budget stale-stale-budget-1 refuses it"},
		"plain":        {drained: "be left to its owner for 3m0s (maintenance.evacuationWait), then be evicted"},
		"plain-called": {drained: "be left to its owner for 3m0s (maintenance.evacuationWait), then be evicted"},
		"untouched":    {pod: intercept, drained: "be evicted after " + silent},
		"waiting":      {pod: intercept, then: ask, drained: "be evicted, as is requested already: waiting for " + silent + " (1 of 2)"},
		"canceled":     {pod: intercept, then: cancel, drained: "be evicted after " + silent},
		"budget":       {then: budget("one"), drained: "be left to its owner for 3m0s (maintenance.evacuationWait), then be evicted; budget one-budget-1 can never allow a disruption (maxUnavailable is 0)"},
		"two-budgets":  {then: both, drained: "be left to its owner for 3m0s (maintenance.evacuationWait), then be evicted; currently it is refused: 2 budgets select it (one-two-budgets-1, two-two-budgets-1), and the eviction API supports one"},
		"behind":       {pod: intercept, then: budget("one"), drained: "be evicted after " + silent + "; budget one-behind-1 can never allow a disruption (maxUnavailable is 0)"},
		"excluded":     {namespace: metav1.NamespaceSystem, pod: intercept, drained: "be evicted after " + silent},
		"ending": {
			pod:     func(w *builder.PodWrapper) { intercept(w); w.Finalizer(drainHolder) },
			then:    func(t *testing.T, pod *corev1.Pod) { t.Helper(); deleteObject(t, pod.DeepCopy()) },
			drained: "be waited for: it is being deleted",
		},
		"ended": {
			pod: intercept,
			then: func(t *testing.T, pod *corev1.Pod) {
				t.Helper()
				if err := admin.Status().Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))); err != nil {
					t.Fatal(err)
				}
			},
			drained: "stay: has ended",
		},
	}
}
