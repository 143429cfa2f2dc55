package interceptor

import (
	"cmp"
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// Add adds an interceptor to a manager. The manager's scheme must have api/v1alpha1 if the
// interceptor has a Name, and k8s.io/api/lifecycle/v1alpha1 if it has a NativeKey. Its
// account must be bound to the chart's ClusterRole NAME-interceptor. With leader election,
// it runs on the leader only. controller-runtime's own metrics
// (controller_runtime_reconcile_*, workqueue_*) include it under its name, and under its key.
func Add(mgr ctrl.Manager, impl Interceptor, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	if o.Recorder == nil {
		o.Recorder = mgr.GetEventRecorder(cutName(cmp.Or(o.Name, o.NativeKey), maxReporter))
	}
	live, reports := mgr.GetAPIReader(), mgr.GetClient()
	if o.ServerClock != nil {
		clocked, err := clockedClient(mgr, o)
		if err != nil {
			return err
		}
		live, reports = clocked, clocked
	}
	if o.Name != "" {
		ours := forDrawbridge(o)
		r := newReconciler(drawbridge(ours.Name), mgr.GetClient(), live, impl, ours)
		r.reports = reports
		b := ctrl.NewControllerManagedBy(mgr).
			Watches(&v1alpha1.EvictionRequest{}, r.requestEvents())
		for _, w := range o.Watches {
			b = b.Watches(w.Object, handler.EnqueueRequestsFromMapFunc(w.enqueue), builder.WithPredicates(w.Predicates...))
		}
		if err := controllers.Complete(b, ours.Name, r, controllerOf(ours)); err != nil {
			return err
		}
	}
	if o.NativeKey == "" {
		return nil
	}
	theirs := forNative(o)
	api := &native{key: theirs.Name, indexed: true}
	r := newReconciler(api, mgr.GetClient(), live, impl, theirs)
	r.reports = reports
	return addNative(mgr, api, r)
}

// controllerOf says how the controller of complete Options runs.
func controllerOf(o Options) controllers.Options {
	return controllers.Options{
		Clock: o.Clock, Workers: o.MaxConcurrent, Limiter: controllers.SlowBackoff(),
		// For earlier work, the current call, and a report.
		Timeout: 4*o.Timeout + 2*reportTimeout,
	}
}

// NewReconciler is the reconciler that Add registers, for callers that run their own
// controller. It reads requests from the client, and from the live reader after a
// conflict. Call it when a request changes or is deleted, and when its RequeueAfter is
// over. A running call does not end with the turn. Options need a Recorder.
//
// Without a Name it is that of the NativeKey, to be called with a pod's RequestOf when one
// of the pod's Evictions changes; it lists those of the namespace, unless the client is also a
// PodEvictions.
func NewReconciler(c client.Client, live client.Reader, impl Interceptor, o Options) (reconcile.Reconciler, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Recorder == nil {
		return nil, fmt.Errorf("interceptor %q: Recorder is not set", cmp.Or(o.Name, o.NativeKey))
	}
	if o.Name == "" {
		o = forNative(o)
		return newReconciler(&native{key: o.Name}, c, live, impl, o), nil
	}
	o = forDrawbridge(o)
	return newReconciler(drawbridge(o.Name), c, live, impl, o), nil
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
	enqueue := func(q *request, queue controllers.Queue) {
		queue.Add(reconcile.Request{NamespacedName: q.Key})
	}
	return controllers.Handler{
		CreateFunc: func(_ context.Context, ev event.CreateEvent, queue controllers.Queue) {
			r.api.note(ev.Object, true)
			if q := r.api.decode(ev.Object); q != nil && q.concerns() {
				enqueue(q, queue)
			}
		},
		UpdateFunc: func(_ context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			r.api.note(ev.ObjectNew, true)
			before, after := r.api.decode(ev.ObjectOld), r.api.decode(ev.ObjectNew)
			if before == nil || after == nil {
				return
			}
			if after.Turn != active {
				r.running.over(after.Key, after.Target.RequestUID)
			}
			anew := before.Target.RequestUID != after.Target.RequestUID
			if anew {
				r.running.over(after.Key, before.Target.RequestUID)
			}
			if before.Turn != after.Turn || anew || after.concerns() && !after.same(before) {
				enqueue(after, queue)
			}
		},
		DeleteFunc: func(_ context.Context, ev event.DeleteEvent, queue controllers.Queue) {
			r.api.note(ev.Object, false)
			q := r.api.decode(ev.Object)
			if q == nil {
				return
			}
			r.running.over(q.Key, q.Target.RequestUID)
			if q.Evicted {
				r.states.podGone(q.Key, q.Target.RequestUID) // The end may not have been handled yet.
			}
			if q.Turn != noTurn || r.states.get(q.Key).Target.RequestUID != "" {
				enqueue(q, queue)
			}
		},
	}
}
