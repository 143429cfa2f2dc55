package controllers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// RunsFor reports whether the request runs for this pod: it is neither finished nor being
// deleted.
func RunsFor(er *v1alpha1.EvictionRequest, pod *corev1.Pod) bool {
	return er != nil && er.DeletionTimestamp == nil && !v1alpha1.IsFinished(er) &&
		er.Spec.Target.Pod != nil && er.Spec.Target.Pod.UID == pod.UID
}

// Lasting reports whether the eviction takes time: it is intercepted, or was tried and
// refused. All others are over before anyone could see a mark on the pod, and must not cost
// a write.
func Lasting(er *v1alpha1.EvictionRequest) bool {
	return slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name != v1alpha1.ImperativeEvictionInterceptor }) ||
		v1alpha1.ReportOf(er, v1alpha1.ImperativeEvictionInterceptor).Retries > 0
}

// RunningEvents passes the changes of a request in which an eviction begins, becomes
// lasting, or ends.
func RunningEvents() predicate.Predicate {
	state := func(obj client.Object) (running, lasts bool) {
		er, ok := obj.(*v1alpha1.EvictionRequest)
		return ok && er.DeletionTimestamp == nil && !v1alpha1.IsFinished(er), ok && Lasting(er)
	}
	return predicate.Funcs{
		UpdateFunc: func(ev event.UpdateEvent) bool {
			ran, lasted := state(ev.ObjectOld)
			runs, lasts := state(ev.ObjectNew)
			return ran != runs || lasted != lasts
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
