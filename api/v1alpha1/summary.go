package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// States of a request, for people (status.summary.state).
const (
	// StatePending says that no interceptor is active: the controller has not observed
	// the request yet, or none is left to activate.
	StatePending RequestState = "Pending"
	// StateIntercepting says that one of the target's own interceptors is active.
	StateIntercepting RequestState = "Intercepting"
	// StateEvicting says that imperative-eviction.k8s.io is active.
	StateEvicting RequestState = "Evicting"
	// StateBlocked says that imperative-eviction.k8s.io is active and its last call
	// failed, usually because of a PodDisruptionBudget.
	StateBlocked RequestState = "Blocked"
	// StateDeleting says that the request is being deleted and a finalizer holds it.
	// Nothing acts on it any more, and no other request can replace it.
	StateDeleting RequestState = "Deleting"
	// StateEvicted says that condition Evicted is True.
	StateEvicted RequestState = "Evicted"
	// StateCanceled says that condition Canceled is True.
	StateCanceled RequestState = "Canceled"
)

// Summarize derives status.summary from the rest of the request. It is a pure function.
// Every write of the status must include its result.
func Summarize(er *EvictionRequest) *EvictionRequestSummary {
	s := &EvictionRequestSummary{
		State: StatePending,
		// The schema limits the list to MaxRequesters, so this cannot overflow.
		Requesters: int32(len(er.Spec.Requesters)), //nolint:gosec // see above
	}
	switch {
	case meta.IsStatusConditionTrue(er.Status.Conditions, ConditionEvicted):
		s.State = StateEvicted
		return s
	case meta.IsStatusConditionTrue(er.Status.Conditions, ConditionCanceled):
		s.State = StateCanceled
		return s
	case er.DeletionTimestamp != nil:
		s.State = StateDeleting
		return s
	case len(er.Status.ActiveInterceptors) == 0:
		return s
	}

	active := er.Status.ActiveInterceptors[0]
	var report InterceptorStatus
	if i := slices.IndexFunc(er.Status.Interceptors, func(r InterceptorStatus) bool { return r.Name == active }); i >= 0 {
		report = er.Status.Interceptors[i]
	}
	position := slices.IndexFunc(er.Status.TargetInterceptors, func(t Interceptor) bool { return t.Name == active }) + 1

	switch {
	case active != ImperativeEvictionInterceptor:
		s.State = StateIntercepting
	case report.Refusal != nil:
		s.State = StateBlocked
		s.Budget = strings.Join(report.Refusal.Budgets, ",")
	default:
		s.State = StateEvicting
	}
	s.Interceptor = fmt.Sprintf("%s %d/%d", active, position, len(er.Status.TargetInterceptors))
	s.ExpectedFinishTime = report.ExpectedFinishTime.DeepCopy()
	return s
}
