package descheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
		Watches(&corev1.Pod{}, d.pods().Handler()).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(controllers.PodOfRequest), builder.WithPredicates(controllers.RunningEvents()))
	if d.MarkEvictOnly {
		b = b.WatchesRawSource(d.changes(mgr.GetCache()))
	}
	return controllers.Complete(b, controllerName, d, controllers.Options{Clock: d.Clock, Timeout: reconcileTimeout, Workers: workers})
}

// pods are those whose annotations are to change.
func (d *Reconciler) pods() controllers.PodsToChange {
	return controllers.PodsToChange{Delay: cacheDelay, ToDo: func(ctx context.Context, pod *corev1.Pod) (bool, error) {
		hints, err := d.decide(ctx, pod)
		return len(hints) > 0, err
	}}
}

// changes is the source of the pods for which the resolver's answer has changed.
func (d *Reconciler) changes(cached client.Reader) source.Source {
	return controllers.Rescan{
		Pods: cached, Clock: d.Clock, OnChange: d.OnChange, Synced: d.Synced,
		Each: func(ctx context.Context, pod *corev1.Pod, queue controllers.Queue) { d.pods().Enqueue(ctx, pod, queue) },
	}.Source()
}
