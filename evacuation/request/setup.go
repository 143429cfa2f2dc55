package request

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

const (
	// controllerName is also the name of the queue in the workqueue_* metrics
	// (statement 107).
	controllerName = "evictionrequests"
	// workers is how many requests are handled at the same time. They mostly wait for
	// the API server, at most three calls each.
	workers = 30
	// reconcileTimeout bounds all calls of one Reconcile together.
	reconcileTimeout = 30 * time.Second
)

// SetupWithManager adds the controller to the manager. It runs only on the
// leader. An error means that a required field is missing or that the manager
// refuses the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := r.validate(); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvictionRequest{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.requestOfPod), builder.WithPredicates(podEvents()))
	if r.Deadlines != nil {
		b.WatchesRawSource(source.Func(r.Deadlines.Start))
	}
	return controllers.Complete(b, controllerName, r, r.options())
}

func (r *Reconciler) options() controllers.Options {
	queue := controllers.NewQueue(r.Clock)
	return controllers.Options{
		Clock: r.Clock, Timeout: reconcileTimeout, Workers: workers,
		NewQueue: func(name string, limiter controllers.Limiter) controllers.Queue {
			// From now on reports of interceptors are seen, so the start-up grace counts from here.
			r.startedAt = r.Clock.Now()
			return queue(name, limiter)
		},
	}
}

func (r *Reconciler) validate() error {
	return controllers.Require("controller "+controllerName, map[string]bool{
		"Client": r.Client != nil, "APIReader": r.APIReader != nil, "Clock": r.Clock != nil,
		"Resolver": r.Resolver != nil, "Planned": r.Planned != nil, "ResolveLive": r.ResolveLive != nil, "Recorder": r.Recorder != nil, "Metrics": r.Metrics != nil,
		"Policy.HeartbeatDeadline": r.Policy.HeartbeatDeadline > 0,
	})
}

// requestOfPod maps a pod to the request of its UID if there is one: one cache lookup
// per event, no list. A pod that arrives before its request needs no mapping, because
// the request's own event finds it.
func (r *Reconciler) requestOfPod(ctx context.Context, pod client.Object) []reconcile.Request {
	key := v1alpha1.RequestKey(pod)
	if err := r.Client.Get(ctx, key, &v1alpha1.EvictionRequest{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		// If unknown, do not miss the event.
		log.FromContext(ctx).Error(err, "Looking for the request of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// podEvents passes what can change a decision or the labels: a pod is created (or seen
// late), deleted, ends, is being deleted, is bound to a node, or is replaced by another
// one between two events.
func podEvents() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Pod)
			if !ok {
				return false
			}
			after, ok := e.ObjectNew.(*corev1.Pod)
			if !ok {
				return false
			}
			return before.UID != after.UID ||
				pods.HasEnded(before) != pods.HasEnded(after) ||
				before.Spec.NodeName != after.Spec.NodeName ||
				pods.DeletionChanged(before, after) ||
				!maps.Equal(before.Labels, after.Labels)
		},
	}
}
