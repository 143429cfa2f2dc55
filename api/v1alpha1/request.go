package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RequestKey is the key of a pod's EvictionRequest: the pod's UID, in its namespace.
func RequestKey(pod metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.GetNamespace(), Name: string(pod.GetUID())}
}

// IsUnhurried reports whether an interceptor keeps, or gets, its turn whatever the deadline of a
// request: EvictionBudgets still count, and native responders know no deadlines.
func IsUnhurried(interceptor string) bool {
	return interceptor == BudgetInterceptor || interceptor == NativeInterceptor
}

// ReportOf returns the interceptor's item of status.interceptors. If there is none, it
// is empty: without a name, it differs from every item.
func ReportOf(er *EvictionRequest, interceptor string) InterceptorStatus {
	for _, report := range er.Status.Interceptors {
		if report.Name == interceptor {
			return report
		}
	}
	return InterceptorStatus{}
}

// HeartbeatDeadlineOf is how long the interceptor may be silent, as frozen in the request; 0 if
// that is the deadline of the installation.
func HeartbeatDeadlineOf(er *EvictionRequest, interceptor string) time.Duration {
	for _, target := range er.Status.TargetInterceptors {
		if target.Name == interceptor && target.HeartbeatDeadline != nil {
			return target.HeartbeatDeadline.Duration
		}
	}
	return 0
}

// Forbidding is the interceptor that has forbidden to cancel the request, "" if there is none.
func Forbidding(er *EvictionRequest) string {
	for _, report := range er.Status.Interceptors {
		if report.Cancellation == CancellationForbidden {
			return report.Name
		}
	}
	return ""
}

// IsTrial reports whether the request is only the trial of a hook, which wants no eviction.
func IsTrial(er *EvictionRequest) bool {
	for _, requester := range er.Spec.Requesters {
		if requester.Name != HookTestRequester {
			return false
		}
	}
	return len(er.Spec.Requesters) > 0
}

// IsUnwanted reports whether the last requester has left, which cancels the request: no
// interceptor has forbidden that.
func IsUnwanted(er *EvictionRequest) bool {
	return len(er.Spec.Requesters) == 0 && Forbidding(er) == ""
}

// IsFinished reports whether the request has an outcome: condition Evicted or Canceled
// is True.
func IsFinished(er *EvictionRequest) bool { return FinishedAt(er) != nil }

// FinishedAt is when the request got its outcome, nil while it runs.
func FinishedAt(er *EvictionRequest) *metav1.Time {
	for _, outcome := range []string{ConditionEvicted, ConditionCanceled} {
		if c := meta.FindStatusCondition(er.Status.Conditions, outcome); c != nil && c.Status == metav1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	return nil
}
