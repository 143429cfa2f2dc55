package native

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

const (
	// controllerName is also the name of the queue in the workqueue_* metrics.
	controllerName = "native-evictions"
	// workers is how many pods are handled at the same time. They mostly wait for the API
	// server.
	workers = 10
	// reconcileTimeout bounds all calls of one Reconcile together.
	reconcileTimeout = 30 * time.Second
)

// SetupWithManager adds the controller to the manager, on the leader only. It does nothing as
// long as the native API is not served.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := controllers.Require("controller "+controllerName, map[string]bool{
		"View": r.View != nil, "Client": r.Client != nil, "APIReader": r.APIReader != nil, "Live": r.Live != nil,
		"Clock": r.Clock != nil, "Resolver": r.Resolver != nil, "Recorder": r.Recorder != nil, "May": r.May != nil,
		"Policy.Process.HeartbeatDeadline": r.Policy.Process.HeartbeatDeadline > 0, "Priority": r.Priority > 0,
	}); err != nil {
		return err
	}
	waker := &controllers.Waker{}
	newQueue := controllers.NewQueue(r.Clock)
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(r.ofRequest)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(podEvents())).
		WatchesRawSource(source.Func(func(ctx context.Context, queue controllers.Queue) error {
			if err := waker.Start(ctx, queue); err != nil {
				return err
			}
			// From now on, when this is the leader: what there is already is told, too.
			r.View.Notify(func(pod types.NamespacedName) { waker.Wake(pod, 0) })
			r.View.OnStart(func() { r.wakeOurs(waker) })
			return nil
		}))
	return controllers.Complete(b, controllerName, r, controllers.Options{
		Clock: r.Clock, Timeout: reconcileTimeout, Workers: workers,
		NewQueue: func(name string, limiter controllers.Limiter) controllers.Queue {
			r.startedAt = r.Clock.Now()
			return newQueue(name, limiter)
		},
	})
}

// wakeOurs looks at our requests that have to do with the native API, when that appears.
func (r *Reconciler) wakeOurs(waker *controllers.Waker) {
	ctx, cancel := context.WithTimeout(context.Background(), reconcileTimeout)
	defer cancel()
	var requests v1alpha1.EvictionRequestList
	if err := r.Client.List(ctx, &requests, client.UnsafeDisableDeepCopy); err != nil {
		log.Log.WithName(controllerName).Error(err, "Could not list the requests when the native API appeared")
		return
	}
	for i := range requests.Items {
		if concerns(&requests.Items[i]) {
			waker.Wake(client.ObjectKeyFromObject(&requests.Items[i]), 0)
		}
	}
}

// ofRequest maps our request to its pod, if there is something native about it.
func (r *Reconciler) ofRequest(ctx context.Context, obj client.Object) []reconcile.Request {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok || !r.View.Engaged() || !concerns(er) && !r.knows(ctx, client.ObjectKeyFromObject(er)) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(er)}}
}

// ofPod maps a pod to itself, if there is something native about it: two lookups in memory.
func (r *Reconciler) ofPod(ctx context.Context, pod client.Object) []reconcile.Request {
	key := v1alpha1.RequestKey(pod)
	if !r.View.Engaged() || !r.knows(ctx, key) {
		er := &v1alpha1.EvictionRequest{}
		if err := r.Client.Get(ctx, key, er); err != nil || !concerns(er) {
			if err != nil && !apierrors.IsNotFound(err) {
				log.FromContext(ctx).Error(err, "Could not look up the request of a pod", "pod", client.ObjectKeyFromObject(pod))
			}
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// knows reports whether there are native objects of the pod. If unknown, no event is missed.
func (r *Reconciler) knows(ctx context.Context, pod types.NamespacedName) bool {
	found, err := r.View.of(ctx, pod)
	return err != nil || len(found.requests)+len(found.evictions) > 0
}

// podEvents passes what can change a decision: a pod is created or seen late, deleted, ends, or
// is being deleted.
func podEvents() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, ok2 := e.ObjectNew.(*corev1.Pod)
		return ok && ok2 && (before.UID != after.UID || pods.HasEnded(before) != pods.HasEnded(after) || pods.DeletionChanged(before, after))
	}}
}
