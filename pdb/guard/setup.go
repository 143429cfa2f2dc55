package guard

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

const (
	// controllerName is also the name of the queue.
	controllerName = "guard"
	// workers is how many pods are labeled at a time.
	workers = 10
	// reconcileTimeout bounds one Reconcile.
	reconcileTimeout = 20 * time.Second
)

// SetupWithManager adds the controller to the manager, on the leader only.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if err := c.validate(); err != nil {
		return err
	}
	c.use, c.written, c.owners = newBudgetUse(), newLastWritten(), newOwners()
	newQueue := controllers.NewQueue(c.Clock)
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&corev1.Pod{}, c.podEvents()).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(controllers.PodOfRequest), builder.WithPredicates(requestEvents())).
		Watches(&policyv1.PodDisruptionBudget{}, c.budgetEvents()).
		WatchesRawSource(c.changes(mgr.GetCache())).
		WatchesRawSource(c.holds())
	return controllers.Complete(b, controllerName, c, controllers.Options{
		Clock: c.Clock, Timeout: reconcileTimeout, Workers: workers,
		NewQueue: func(name string, limiter controllers.Limiter) controllers.Queue {
			c.queue = newQueue(name, limiter)
			return c.queue
		},
	})
}

func (c *Controller) validate() error {
	return controllers.Require("controller "+controllerName, map[string]bool{
		"Client": c.Client != nil, "APIReader": c.APIReader != nil, "Clock": c.Clock != nil, "Resolver": c.Resolver != nil,
		"Registrations": c.Registrations != nil, "OnChange": c.OnChange != nil, "Preflights": c.Preflights != nil, "Holds": c.Holds != nil, "Native": c.Native != nil,
		"Synced": c.Synced != nil, "Recorder": c.Recorder != nil, "Metrics": c.Metrics != nil,
	})
}

// podEvents enqueues a pod only if there is something to do, which is decided from
// memory. The rescan handles the first list.
func (c *Controller) podEvents() handler.EventHandler {
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue controllers.Queue) {
			if !ev.IsInInitialList {
				c.enqueue(ctx, ev.Object, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			if pod, ok := ev.ObjectNew.(*corev1.Pod); ok {
				c.written.shown(client.ObjectKeyFromObject(pod), pod.UID, labeled(pod))
			}
			c.releases(ev.ObjectOld, ev.ObjectNew, queue)
			c.enqueue(ctx, ev.ObjectNew, queue)
		},
		DeleteFunc: func(_ context.Context, ev event.DeleteEvent, queue controllers.Queue) {
			c.releases(ev.Object, nil, queue)
			key := client.ObjectKeyFromObject(ev.Object)
			c.use.settle(key)
			c.written.forgetEmitted(key)
			c.written.forgetWrote(key)
			c.written.forgetWrites(key)
			c.written.leave(key, false)
			c.Metrics.Forget(key)
		},
	}
}

// enqueue enqueues a pod if there is something to do about it, and returns its state.
func (c *Controller) enqueue(ctx context.Context, obj client.Object, queue controllers.Queue) State {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return StateNone
	}
	_, decision, err := c.decide(ctx, pod)
	if err != nil {
		// If unknown, do not miss the event.
		log.FromContext(ctx).Error(err, "Looking what is known of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
	switch {
	case err != nil || decision.Change != ChangeNothing:
		queue.Add(key)
	case decision.LookAgain:
		queue.AddAfter(key, lookAgain)
	}
	return decision.State
}

// releases enqueues a check of whether the namespace still needs its budget, if a pod no
// longer does.
func (c *Controller) releases(before, after client.Object, queue controllers.Queue) {
	protected := func(obj client.Object) bool {
		pod, ok := obj.(*corev1.Pod)
		return ok && labeled(pod) && pod.DeletionTimestamp == nil && !pods.HasEnded(pod)
	}
	if !protected(before) || protected(after) {
		return
	}
	c.use.need(before.GetNamespace(), c.Clock.Now())
	queue.AddAfter(namespaceKey(before.GetNamespace()), c.idleDelay())
}

// requestEvents passes the changes of a request that may open or close a guard: another
// stage, another interceptor, or its plan.
func requestEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(ev event.CreateEvent) bool { return !ev.IsInInitialList },
		UpdateFunc: func(ev event.UpdateEvent) bool {
			before, ok := ev.ObjectOld.(*v1alpha1.EvictionRequest)
			after, ok2 := ev.ObjectNew.(*v1alpha1.EvictionRequest)
			if !ok || !ok2 || after.Spec.Target.Pod == nil {
				return false
			}
			pod := after.Spec.Target.Pod.UID
			return stageOf(before, pod) != stageOf(after, pod) ||
				!slices.Equal(before.Status.ActiveInterceptors, after.Status.ActiveInterceptors) ||
				len(before.Status.TargetInterceptors) != len(after.Status.TargetInterceptors)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// budgetEvents handles our own budgets, and other budgets that start or stop selecting
// pods. Their statuses, which change all the time, do not matter.
func (c *Controller) budgetEvents() handler.EventHandler {
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue controllers.Queue) {
			c.budgetChanged(ctx, nil, asBudget(ev.Object), ev.IsInInitialList, queue)
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			c.budgetChanged(ctx, asBudget(ev.ObjectOld), asBudget(ev.ObjectNew), false, queue)
		},
		DeleteFunc: func(ctx context.Context, ev event.DeleteEvent, queue controllers.Queue) {
			c.use.forgetBudget(ev.Object.GetNamespace(), ev.Object.GetUID())
			c.written.forgetEmitted(strangerKey(ev.Object))
			if ev.Object.GetName() == v1alpha1.GuardBudgetName {
				c.use.seen(ev.Object.GetNamespace())
			}
			c.budgetChanged(ctx, asBudget(ev.Object), nil, false, queue)
		},
	}
}

func asBudget(obj client.Object) *policyv1.PodDisruptionBudget {
	pdb, _ := obj.(*policyv1.PodDisruptionBudget)
	return pdb
}

// budgetChanged handles a budget that was created (before is nil), changed or deleted
// (after is nil).
func (c *Controller) budgetChanged(ctx context.Context, before, after *policyv1.PodDisruptionBudget, initial bool, queue controllers.Queue) {
	either := after
	if either == nil {
		either = before
	}
	if either == nil {
		return
	}
	was, is := before != nil && isGuard(before), after != nil && isGuard(after)
	if either.Name == v1alpha1.GuardBudgetName {
		if before == nil || after == nil || c.budgetState(before) != c.budgetState(after) || is && !asWanted(after, c.Owner) {
			queue.Add(namespaceKey(either.Namespace))
		}
	}
	c.emitSelector(after)
	if initial || (was || before == nil) && (is || after == nil) {
		return // The rescan handles all pods, and our own budgets select only pods that we labeled.
	}
	if before != nil && after != nil && was == is && apiequality.Semantic.DeepEqual(before.Spec.Selector, after.Spec.Selector) {
		return
	}
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(either.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the pods of a budget", "budget", client.ObjectKeyFromObject(either))
		return
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; before != nil && selects(before, pod) || after != nil && selects(after, pod) {
			c.enqueue(ctx, pod, queue)
		}
	}
}

// strangerKey is the key of another budget.
func strangerKey(budget client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: budget.GetNamespace(), Name: "poddisruptionbudgets/" + budget.GetName()}
}

// emitSelector records once that another budget selects by the guard's label.
func (c *Controller) emitSelector(pdb *policyv1.PodDisruptionBudget) {
	if pdb == nil || isGuard(pdb) || !selectsByGuard(pdb) || !c.written.firstTime(strangerKey(pdb), pdb.UID) {
		return
	}
	events.Emit(c.Recorder, pdb, nil, events.GuardLabelSelected(v1alpha1.GuardLabel))
}

// changes is the source of pods for which other answers have changed, and of all pods at
// the start.
func (c *Controller) changes(cached client.Reader) source.Source {
	return controllers.Rescan{
		Pods: cached, Clock: c.Clock, OnChange: c.OnChange, Synced: c.Synced, AtOnce: true,
		Each: func(ctx context.Context, pod *corev1.Pod, queue controllers.Queue) {
			if state := c.enqueue(ctx, pod, queue); state.Closes() && labeled(pod) {
				queue.Add(namespaceKey(pod.Namespace)) // Its budget may have been deleted while no manager ran.
			}
		},
	}.Source()
}

// holds is the source of the pods that become held or released, and of those whose native
// Eviction has changed.
func (c *Controller) holds() source.Source {
	return source.Func(func(_ context.Context, queue controllers.Queue) error {
		add := func(pod types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: pod}) }
		c.Holds.OnPodChange(add)
		c.Native.OnPodChange(add)
		return nil
	})
}
