package surge

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// orphansName is the name of the controller and of its queue.
const orphansName = "surge-orphans"

// orphanTimeout bounds one Reconcile.
const orphanTimeout = 30 * time.Second

// orphans is the controller that gives back pods that were handed up for a request that
// is gone or canceled. The SDK cancels the turns it knows about; this finds the others,
// such as those whose request was deleted while no manager ran. Its keys are pods. A
// request in the imperative stage still wants its pod handed up, so every request that
// has not ended counts.
type orphans struct{ surge *Surge }

func (o *orphans) setup(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.And(
			predicate.NewPredicateFuncs(func(obj client.Object) bool {
				_, ok := obj.GetAnnotations()[HandedUpAnnotation]
				return ok
			}),
			predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }},
		))).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(podOfEnded))
	return controllers.Complete(b, orphansName, o, controllers.Options{Clock: o.surge.Clock, Timeout: orphanTimeout})
}

// podOfEnded is the pod of a request that has ended or is about to.
func podOfEnded(_ context.Context, obj client.Object) []reconcile.Request {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok || er.Spec.Target.Pod == nil || wants(er) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: keyOf(er.Namespace, er.Spec.Target.Pod.Name)}}
}

// wants reports whether the request may still lead to the pod's eviction.
func wants(er *v1alpha1.EvictionRequest) bool {
	return er.DeletionTimestamp == nil && !meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled)
}

var _ reconcile.Reconciler = &orphans{}

// Reconcile gives one pod back, if it was handed up and nobody wants it evicted.
func (o *orphans) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := o.surge.Client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, up := handedUp(pod); !up || ended(pod) {
		return reconcile.Result{}, nil
	}
	key := v1alpha1.RequestKey(pod)
	for _, reader := range []client.Reader{o.surge.Client, o.surge.APIReader} { // The cache may lag behind a new request.
		if wanted, err := isWanted(ctx, reader, key); err != nil || wanted {
			return reconcile.Result{}, err
		}
	}
	err := o.surge.restore(ctx, subject{pod: req.NamespacedName, uid: pod.UID, request: key}, metrics.GivenBackOrphaned)
	if errors.Is(err, errNotObserved) {
		return reconcile.Result{RequeueAfter: recheckSoon}, nil
	}
	return reconcile.Result{}, err
}

func isWanted(ctx context.Context, reader client.Reader, key types.NamespacedName) (bool, error) {
	er := &v1alpha1.EvictionRequest{}
	if err := reader.Get(ctx, key, er); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("get eviction request: %w", err)
	}
	return wants(er), nil
}
