package interceptor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// Add adds an interceptor to a manager. The manager's scheme must have api/v1alpha1,
// and its account must be bound to the chart's ClusterRole NAME-interceptor. With
// leader election, it runs on the leader only. controller-runtime's own metrics
// (controller_runtime_reconcile_*, workqueue_*) include it under its name.
func Add(mgr ctrl.Manager, impl Interceptor, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	if o.Recorder == nil {
		o.Recorder = mgr.GetEventRecorder(cutName(o.Name, maxReporter))
	}
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), impl, o)
	if o.ServerClock != nil {
		clocked, err := clockedClient(mgr, o)
		if err != nil {
			return err
		}
		r.live, r.reports = clocked, clocked
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&v1alpha1.EvictionRequest{}, r.requestEvents())
	for _, w := range o.Watches {
		b = b.Watches(w.Object, handler.EnqueueRequestsFromMapFunc(w.enqueue), builder.WithPredicates(w.Predicates...))
	}
	return controllers.Complete(b, o.Name, r, controllers.Options{
		Clock: o.Clock, Workers: o.MaxConcurrent, Limiter: controllers.SlowBackoff(),
		// For earlier work, the current call, and a report.
		Timeout: 4*o.Timeout + 2*reportTimeout,
	})
}

// NewReconciler is the reconciler that Add registers, for callers that run their own
// controller. It reads requests from the client, and from the live reader after a
// conflict. Call it when a request changes or is deleted, and when its RequeueAfter is
// over. A running call does not end with the turn. Options need a Recorder.
func NewReconciler(c client.Client, live client.Reader, impl Interceptor, o Options) (reconcile.Reconciler, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Recorder == nil {
		return nil, fmt.Errorf("interceptor %q: Recorder is not set", o.Name)
	}
	return newReconciler(c, live, impl, o), nil
}

// enqueue enqueues the requests that an object maps to.
func (w Watch) enqueue(ctx context.Context, obj client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, key := range w.Requests(ctx, obj) {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// requestEvents passes the events that concern the interceptor, and stops a call of
// Evacuate when its turn is over.
func (r *reconciler) requestEvents() handler.EventHandler {
	mine := func(obj client.Object) (er *v1alpha1.EvictionRequest, turn turn) {
		er, ok := obj.(*v1alpha1.EvictionRequest)
		if !ok {
			return nil, noTurn
		}
		return er, turnOf(er, r.Name)
	}
	enqueue := func(obj client.Object, q controllers.Queue) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	}
	return controllers.Handler{
		CreateFunc: func(_ context.Context, ev event.CreateEvent, q controllers.Queue) {
			if er, turn := mine(ev.Object); turn != noTurn || er != nil && r.mustSave(er) {
				enqueue(ev.Object, q)
			}
		},
		UpdateFunc: func(_ context.Context, ev event.UpdateEvent, q controllers.Queue) {
			before, was := mine(ev.ObjectOld)
			after, is := mine(ev.ObjectNew)
			if before == nil || after == nil {
				return
			}
			key := client.ObjectKeyFromObject(after)
			if is != active {
				r.running.over(key, after.UID)
			}
			if before.UID != after.UID {
				r.running.over(key, before.UID)
			}
			saves := r.mustSave(after) && !r.mustSave(before)
			if was != is || before.UID != after.UID || saves || (is != noTurn && !sameTarget(before, after)) {
				enqueue(after, q)
			}
		},
		DeleteFunc: func(_ context.Context, ev event.DeleteEvent, q controllers.Queue) {
			key := client.ObjectKeyFromObject(ev.Object)
			r.running.over(key, ev.Object.GetUID())
			er, turn := mine(ev.Object)
			if er != nil && meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted) {
				r.states.podGone(key, er.UID) // The end may not have been handled yet.
			}
			if turn != noTurn || r.states.get(key).Target.RequestUID != "" {
				enqueue(ev.Object, q)
			}
		},
	}
}

// sameTarget reports whether an interceptor would be told the same. Reports, including
// its own, are no reason to reconcile.
func sameTarget(a, b *v1alpha1.EvictionRequest) bool {
	return a.Status.NodeName == b.Status.NodeName && a.Status.Deadline.Equal(b.Status.Deadline) && maps.Equal(a.Labels, b.Labels) &&
		slices.EqualFunc(a.Spec.Requesters, b.Spec.Requesters, func(a, b v1alpha1.Requester) bool { return a.Name == b.Name })
}
