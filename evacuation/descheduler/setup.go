package descheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	// controllerName is the name of the controller and of its queue.
	controllerName = "descheduler-hints"
	// workers is how many pods are annotated at a time.
	workers = 4
	// reconcileTimeout bounds one Reconcile.
	reconcileTimeout = 20 * time.Second
)

// SetupWithManager adds the controller to the manager, on the leader only.
func (d *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := controllers.Require("controller "+controllerName, map[string]bool{
		"Client": d.Client != nil, "APIReader": d.APIReader != nil, "Clock": d.Clock != nil,
		"Resolver": d.Resolver != nil, "OnChange": d.OnChange != nil, "Synced": d.Synced != nil,
	})
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&corev1.Pod{}, d.podEvents()).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(controllers.PodOfRequest), builder.WithPredicates(controllers.RunningEvents()))
	if d.MarkEvictOnly {
		b = b.WatchesRawSource(d.changes(mgr.GetCache()))
	}
	return controllers.Complete(b, controllerName, d, controllers.Options{Clock: d.Clock, Timeout: reconcileTimeout, Workers: workers})
}

// podEvents enqueues a pod only if there is something to do, which is decided from
// memory. So a restart finds what its predecessor left on pods, and ordinary changes of
// a pod cost nothing.
func (d *Reconciler) podEvents() handler.EventHandler {
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue controllers.Queue) {
			d.enqueue(ctx, ev.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			d.enqueue(ctx, ev.ObjectNew, queue)
		},
	}
}

func (d *Reconciler) enqueue(ctx context.Context, obj client.Object, queue controllers.Queue) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	hints, err := d.decide(ctx, pod)
	if err != nil {
		// If unknown, do not miss the event.
		log.FromContext(ctx).Error(err, "Looking for the request of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	if err != nil || len(hints) > 0 {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}, cacheDelay)
	}
}

// changes is the source of the pods for which the resolver's answer has changed.
func (d *Reconciler) changes(cached client.Reader) source.Source {
	return controllers.Rescan{
		Pods: cached, Clock: d.Clock, OnChange: d.OnChange, Synced: d.Synced,
		Each: func(ctx context.Context, pod *corev1.Pod, queue controllers.Queue) { d.enqueue(ctx, pod, queue) },
	}.Source()
}
