package lease

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// controllerName is the name of the controller and of its queue.
const controllerName = "requester-leases"

// workers is the default number of leases handled at a time.
const workers = 2

// reconcileTimeout bounds one Reconcile: the removal of one requester from all the
// requests of its node.
const reconcileTimeout = 2 * time.Minute

// SetupWithManager adds the controller to the manager, on the leader only. The
// cache needs the indexes of package index.
func (l *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := controllers.Require("controller "+controllerName, map[string]bool{
		"Client": l.Client != nil, "APIReader": l.APIReader != nil, "Clock": l.Clock != nil,
		"Recorder": l.Recorder != nil, "Namespace": l.Namespace != "",
	})
	if err != nil {
		return err
	}
	if l.MaxConcurrentReconciles <= 0 {
		l.MaxConcurrentReconciles = workers
	}
	l.init()
	newQueue := controllers.NewQueue(l.Clock)
	b := ctrl.NewControllerManagedBy(mgr).
		For(&coordinationv1.Lease{}, builder.WithPredicates(l.leaseEvents())).
		Watches(&v1alpha1.EvictionRequest{}, handler.EnqueueRequestsFromMapFunc(l.leasesOfRequest), builder.WithPredicates(requestEvents())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(l.leasesOfNode), builder.WithPredicates(nodeEvents()))
	return controllers.Complete(b, controllerName, l, controllers.Options{
		Clock: l.Clock, Timeout: reconcileTimeout, Workers: l.MaxConcurrentReconciles,
		NewQueue: func(name string, limiter controllers.Limiter) controllers.Queue {
			l.mu.Lock()
			l.startedAt = l.Clock.Now() // Our outage ends here.
			l.mu.Unlock()
			return newQueue(name, limiter)
		},
	})
}

// init makes what a started controller needs.
func (l *Reconciler) init() { l.observed = map[string]*observed{} }

// leaseEvents passes our own leases, except renewals, which are only noted.
func (l *Reconciler) leaseEvents() predicate.Predicate {
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetNamespace() == l.Namespace && obj.GetLabels()[translate.LeaseLabel] == translate.LeaseLabelValue
	})
	return predicate.And(ours, predicate.Funcs{
		UpdateFunc: func(ev event.UpdateEvent) bool {
			before, ok := ev.ObjectOld.(*coordinationv1.Lease)
			after, ok2 := ev.ObjectNew.(*coordinationv1.Lease)
			if !ok || !ok2 {
				return false
			}
			l.seeRenewal(after)
			return !renewal(before, after)
		},
	})
}

// renewal reports whether only the renewal changed: the key is requeued anyway for when
// the old one would have expired.
func renewal(before, after *coordinationv1.Lease) bool {
	if before.UID != after.UID || before.Spec.RenewTime == nil || after.Spec.RenewTime == nil ||
		after.Spec.RenewTime.Time.Before(before.Spec.RenewTime.Time) {
		return false
	}
	spec := after.Spec.DeepCopy()
	spec.RenewTime = before.Spec.RenewTime
	return equality.Semantic.DeepEqual(before.Spec, *spec) && equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
}

// requestEvents passes the events of requests in which a lease may be named for the
// first time.
func requestEvents() predicate.Predicate {
	return predicate.And(predicate.GenerationChangedPredicate{}, predicate.Funcs{
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	})
}

// leasesOfRequest are the leases that a request's requesters name.
func (l *Reconciler) leasesOfRequest(_ context.Context, obj client.Object) []reconcile.Request {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok {
		return nil
	}
	var keys []reconcile.Request
	for _, r := range er.Spec.Requesters {
		if r.LeaseName != "" && len(requestersOfLease(er, r.LeaseName)) > 0 {
			keys = append(keys, l.key(r.LeaseName))
		}
	}
	return keys
}

// nodeEvents passes the changes of a node that can matter to a lease, unlike the
// kubelet's heartbeats.
func nodeEvents() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(ev event.UpdateEvent) bool {
			before, ok := ev.ObjectOld.(*corev1.Node)
			after, ok2 := ev.ObjectNew.(*corev1.Node)
			return ok && ok2 && (before.UID != after.UID || pods.DeletionChanged(before, after) ||
				!slices.Equal(translate.NodeMarkers(before), translate.NodeMarkers(after)))
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// leasesOfNode are the leases of the node's drainers.
func (l *Reconciler) leasesOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	list := &coordinationv1.LeaseList{}
	if err := l.Client.List(ctx, list, client.InNamespace(l.Namespace), client.MatchingFields{index.LeasesByNode: node.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the leases of a node", "node", node.GetName())
		return nil
	}
	keys := make([]reconcile.Request, 0, len(list.Items))
	for _, lease := range list.Items {
		keys = append(keys, l.key(lease.Name))
	}
	return keys
}

func (l *Reconciler) key(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: l.Namespace, Name: name}}
}
