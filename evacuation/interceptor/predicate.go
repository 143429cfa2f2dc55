package interceptor

import (
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// TurnChanged passes the events of EvictionRequests, and of native Evictions, that an
// interceptor may have to act upon, which excludes reports, also its own. It is for callers
// of NewReconciler.
func TurnChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(ev event.UpdateEvent) bool {
			if before, ok := ev.ObjectOld.(*lifecyclev1alpha1.Eviction); ok {
				after, ok := ev.ObjectNew.(*lifecyclev1alpha1.Eviction)
				return ok && nativeTurnChanged(before, after)
			}
			before, ok := ev.ObjectOld.(*v1alpha1.EvictionRequest)
			after, ok2 := ev.ObjectNew.(*v1alpha1.EvictionRequest)
			if !ok || !ok2 {
				return false
			}
			return before.UID != after.UID || before.Generation != after.Generation ||
				!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
				before.Status.NodeName != after.Status.NodeName || !before.Status.Deadline.Equal(after.Status.Deadline) ||
				!slices.Equal(before.Status.ActiveInterceptors, after.Status.ActiveInterceptors) ||
				!slices.Equal(before.Status.ProcessedInterceptors, after.Status.ProcessedInterceptors) ||
				!equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func nativeTurnChanged(before, after *lifecyclev1alpha1.Eviction) bool {
	return before.UID != after.UID ||
		!equality.Semantic.DeepEqual(before.Status.TargetResponders, after.Status.TargetResponders) ||
		!slices.Equal(before.Status.Requesters, after.Status.Requesters) ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp)
}
