package evictor

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// controllerName is the name of the controller and of its queue.
const controllerName = "imperative-eviction"

// workers is the default number of pods evicted at a time. A call takes long but is
// little work: for each one the API server first lists the budgets of the namespace
// (kubernetes: pkg/registry/core/pod/storage/eviction.go, getPodDisruptionBudgets), up
// to 100 ms by the request log.
const workers = 50

// overhead limits the other calls of one Reconcile, besides the eviction.
const overhead = 20 * time.Second

// SetupWithManager adds the evictor to the manager, on the leader only.
func (e *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := controllers.Require("controller "+controllerName, map[string]bool{
		"Client": e.Client != nil, "APIReader": e.APIReader != nil, "Clock": e.Clock != nil,
		"Recorder": e.Recorder != nil, "Metrics": e.Metrics != nil, "Failures": e.Failures != nil,
		"Synced": e.Synced != nil, "Guarded": e.Guarded != nil,
		"Policy.BackoffMin": e.Policy.BackoffMin > 0, "Policy.BackoffMax": e.Policy.BackoffMax >= e.Policy.BackoffMin,
	})
	if err != nil {
		return err
	}
	calls, err := newClient(mgr.GetConfig())
	if err != nil {
		return err
	}
	if e.Timeout <= 0 {
		e.Timeout = DefaultTimeout
	}
	if e.MaxConcurrentReconciles <= 0 {
		e.MaxConcurrentReconciles = workers
	}
	e.init(newCall(calls, e.Timeout), newRemove(calls, e.Timeout))
	newQueue := controllers.NewQueue(e.Clock)
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvictionRequest{}, builder.WithPredicates(requestEvents())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(e.requestOfPod), builder.WithPredicates(podEvents())).
		Watches(&policyv1.PodDisruptionBudget{}, e.budgetEvents())
	return controllers.Complete(b, controllerName, e, controllers.Options{
		Clock: e.Clock, Timeout: e.Timeout + overhead, Workers: e.MaxConcurrentReconciles,
		NewQueue: func(name string, limiter controllers.Limiter) controllers.Queue {
			e.queue = newQueue(name, limiter)
			if e.Native != nil {
				e.Native.Notify(func(pod types.NamespacedName) { e.enqueue([]types.NamespacedName{pod}) })
			}
			return e.queue
		},
	})
}

// init prepares a started evictor; the queue is created later.
func (e *Reconciler) init(call, remove callFunc) {
	e.call, e.remove = call, remove
	e.budgets = newBudgetQueue()
	e.last = map[types.NamespacedName]Attempt{}
}

// requestEvents passes the events that concern the evictor: requests for which it is or
// was our turn.
func requestEvents() predicate.Predicate {
	turn := func(obj client.Object) bool {
		er, ok := obj.(*v1alpha1.EvictionRequest)
		return ok && IsTurn(er)
	}
	return predicate.Funcs{
		CreateFunc:  func(ev event.CreateEvent) bool { return turn(ev.Object) },
		UpdateFunc:  func(ev event.UpdateEvent) bool { return turn(ev.ObjectOld) || turn(ev.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// podEvents passes the changes of a pod that matter to the evictor: it appears, starts
// to terminate, is held by other finalizers, ends, or is selected by other budgets.
func podEvents() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(ev event.UpdateEvent) bool {
			before, ok := ev.ObjectOld.(*corev1.Pod)
			after, ok2 := ev.ObjectNew.(*corev1.Pod)
			return ok && ok2 && (pods.DeletionChanged(before, after) ||
				pods.HasEnded(before) != pods.HasEnded(after) || !maps.Equal(before.Labels, after.Labels) ||
				(after.DeletionTimestamp != nil && !slices.Equal(before.Finalizers, after.Finalizers)))
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// requestOfPod finds the request of a pod by its name, which is the pod's UID. For the
// many pods without one it costs a cache lookup.
func (e *Reconciler) requestOfPod(ctx context.Context, pod client.Object) []reconcile.Request {
	key := v1alpha1.RequestKey(pod)
	w, err := e.wishOf(ctx, key, false)
	if err != nil {
		log.FromContext(ctx).Error(err, "Could not look up the request of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	if w == nil || !w.isTurn() && w.native == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// budgetEvents feeds budget changes to the budget queue and enqueues the woken
// requests.
func (e *Reconciler) budgetEvents() handler.EventHandler {
	wake := func(queue controllers.Queue, keys []types.NamespacedName) {
		for _, key := range keys {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
	observe := func(ctx context.Context, obj client.Object, queue controllers.Queue) {
		if pdb, ok := obj.(*policyv1.PodDisruptionBudget); ok {
			wake(queue, e.budgets.Observe(pdb))
			if seen, doubtful := e.budgets.Doubtful(client.ObjectKeyFromObject(pdb)); doubtful {
				correct(queue, e.judge(ctx, pdb, seen))
			}
		}
	}
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue controllers.Queue) {
			observe(ctx, ev.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			observe(ctx, ev.ObjectNew, queue)
		},
		DeleteFunc: func(_ context.Context, ev event.DeleteEvent, queue controllers.Queue) {
			wake(queue, e.budgets.Remove(client.ObjectKeyFromObject(ev.Object)))
		},
	}
}
