package request

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/clockqueue"
)

const (
	// deschedulerName is the name of the controller and of its queue.
	deschedulerName = "descheduler-hints"
	// deschedulerWorkers is how many pods are annotated at a time.
	deschedulerWorkers = 4
	// deschedulerTimeout bounds one Reconcile.
	deschedulerTimeout = 20 * time.Second
)

// hintQueue is the queue of this controller.
type hintQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager adds the controller to the manager, on the leader only.
func (d *Descheduler) SetupWithManager(mgr ctrl.Manager) error {
	err := requireFields(deschedulerName, map[string]bool{
		"Client": d.Client != nil, "APIReader": d.APIReader != nil, "Clock": d.Clock != nil,
		"Resolver": d.Resolver != nil || !d.MarkEvictOnly, "Synced": d.Synced != nil || !d.MarkEvictOnly,
	})
	if err != nil {
		return err
	}
	c := ctrl.NewControllerManagedBy(mgr).
		Named(deschedulerName).
		Watches(&corev1.Pod{}, d.podEvents()).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(podOfRequest), builder.WithPredicates(hintRequestEvents())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: deschedulerWorkers,
			NeedLeaderElection:      new(true),
			ReconciliationTimeout:   deschedulerTimeout,
			RateLimiter:             errorLimiter(),
			NewQueue:                clockqueue.New(d.Clock),
		})
	if d.MarkEvictOnly && d.OnChange != nil {
		c = c.WatchesRawSource(d.changes())
	}
	if err := c.Complete(d); err != nil {
		return fmt.Errorf("set up controller %s: %w", deschedulerName, err)
	}
	return nil
}

// podEvents enqueues a pod only if there is something to do about it, which is a
// matter of memory. So a restart finds what its predecessor left on pods, and a
// pod's everyday changes cost nothing.
func (d *Descheduler) podEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue hintQueue) { d.enqueue(ctx, ev.Object, queue) },
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue hintQueue) { d.enqueue(ctx, ev.ObjectNew, queue) },
	}
}

func (d *Descheduler) enqueue(ctx context.Context, obj client.Object, queue hintQueue) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	hints, err := d.decide(ctx, pod)
	if err != nil {
		// Not knowing is no reason to miss the event.
		log.FromContext(ctx).Error(err, "Looking for the request of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	if err != nil || len(hints) > 0 {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}, hintDelay)
	}
}

// podOfRequest is the pod that a request targets.
func podOfRequest(_ context.Context, obj client.Object) []reconcile.Request {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok || er.Spec.Target.Pod == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: er.Namespace, Name: er.Spec.Target.Pod.Name}}}
}

// hintRequestEvents lets those changes of a request pass in which an eviction
// begins, begins to last, or ends.
func hintRequestEvents() predicate.Predicate {
	state := func(obj client.Object) (running, lasts bool) {
		er, ok := obj.(*v1alpha1.EvictionRequest)
		return ok && er.DeletionTimestamp == nil && !finished(er), ok && lasting(er)
	}
	return predicate.Funcs{
		UpdateFunc: func(ev event.UpdateEvent) bool {
			ran, lasted := state(ev.ObjectOld)
			runs, lasts := state(ev.ObjectNew)
			return ran != runs || lasted != lasts
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// changes is the source of those pods about which the resolver has changed its
// mind.
func (d *Descheduler) changes() source.Source {
	return source.Func(func(ctx context.Context, queue hintQueue) error {
		changed := make(chan struct{}, 1)
		changed <- struct{}{} // What was registered before we listened.
		d.OnChange(func() {
			select {
			case changed <- struct{}{}:
			default: // It will be looked at anyway.
			}
		})
		go d.rescan(ctx, changed, queue)
		return nil
	})
}

// rescan looks at all pods in the cache some time after each change, once for all
// that came meanwhile.
func (d *Descheduler) rescan(ctx context.Context, changed <-chan struct{}, queue hintQueue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		for waited := false; !waited || !d.Synced(); waited = true {
			select {
			case <-ctx.Done():
				return
			case <-d.Clock.After(hintRescanDelay):
			}
		}
		pods := &corev1.PodList{}
		if err := d.Client.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Could not list the pods after a change of the registrations")
			continue
		}
		for i := range pods.Items {
			d.enqueue(ctx, &pods.Items[i], queue)
		}
	}
}
