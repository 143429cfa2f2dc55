// Package deletioncost makes pods the cheapest to lose whose eviction is requested: a
// scale-down of their ReplicaSet takes them first, and not pods that would have stayed
// (controller.kubernetes.io/pod-deletion-cost, KEP-2255).
package deletioncost

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

const (
	// controllerName is the name of the controller and of its queue.
	controllerName = "pod-deletion-cost"
	// fieldOwner of the annotations.
	fieldOwner = "deletion-cost." + v1alpha1.GroupName
	// workers is how many pods are annotated at a time.
	workers = 4
	// reconcileTimeout bounds one Reconcile.
	reconcileTimeout = 20 * time.Second
	// cacheDelay lets the cache catch up with what we have just written.
	cacheDelay = 200 * time.Millisecond
)

// Reconciler is the controller of the deletion costs. Its keys are pods. A pod without a
// request and without a cost of ours costs no API call; an event of a pod of a ReplicaSet
// costs a cache lookup.
//
// Permissions: patch of pods.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Clock drives the queue, which SetupWithManager makes.
	Clock clock.WithTicker
}

var _ reconcile.Reconciler = &Reconciler{}

// SetupWithManager adds the controller to the manager, on the leader only.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := controllers.Require("controller "+controllerName, map[string]bool{
		"Client": r.Client != nil, "APIReader": r.APIReader != nil, "Clock": r.Clock != nil,
	})
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&corev1.Pod{}, r.pods().Handler()).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(controllers.PodOfRequest), builder.WithPredicates(controllers.RunningEvents()))
	return controllers.Complete(b, controllerName, r, controllers.Options{Clock: r.Clock, Timeout: reconcileTimeout, Workers: workers})
}

// pods are those whose cost is to change.
func (r *Reconciler) pods() controllers.PodsToChange {
	return controllers.PodsToChange{Delay: cacheDelay, ToDo: func(ctx context.Context, pod *corev1.Pod) (bool, error) {
		do, err := r.decide(ctx, pod)
		return do != keep, err
	}}
}

// Reconcile gathers, decides and applies for one pod.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	// If the patch does not apply, the pod is newer than the cache.
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		pod := &corev1.Pod{}
		if err := reader.Get(ctx, req.NamespacedName, pod); err != nil {
			if apierrors.IsNotFound(err) {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{}, fmt.Errorf("get pod: %w", err)
		}
		do, err := r.decide(ctx, pod)
		if err != nil || do == keep {
			return reconcile.Result{}, err
		}
		patch, err := patchOf(pod.UID, pod.Annotations, do)
		if err != nil {
			return reconcile.Result{}, err
		}
		err = r.Client.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldOwner))
		switch {
		case err == nil:
			log.FromContext(ctx).V(1).Info("Changed the pod's deletion cost", "lowered", do == lower)
			return reconcile.Result{}, nil
		case apierrors.IsNotFound(err):
			return reconcile.Result{}, nil
		case !refused.Changed(err):
			return reconcile.Result{}, fmt.Errorf("change the deletion cost of the pod: %w", err)
		}
	}
	return reconcile.Result{}, fmt.Errorf("change the deletion cost of pod %s: it kept changing", req.NamespacedName)
}

// decide gathers what is known of the pod from memory, and decides.
func (r *Reconciler) decide(ctx context.Context, pod *corev1.Pod) (change, error) {
	owner := metav1.GetControllerOfNoCopy(pod)
	in := input{
		Annotations:  pod.Annotations,
		Ending:       pod.DeletionTimestamp != nil || pods.HasEnded(pod),
		OfReplicaSet: owner != nil && owner.Kind == "ReplicaSet",
	}
	if _, marked := pod.Annotations[FormerAnnotation]; !marked && !in.OfReplicaSet {
		return keep, nil
	}
	er := &v1alpha1.EvictionRequest{}
	err := r.Client.Get(ctx, v1alpha1.RequestKey(pod), er)
	if client.IgnoreNotFound(err) != nil {
		return keep, fmt.Errorf("get EvictionRequest: %w", err)
	}
	if err == nil && controllers.RunsFor(er, pod) {
		in.Running, in.Lasting = true, controllers.Lasting(er)
	}
	return step(in), nil
}
