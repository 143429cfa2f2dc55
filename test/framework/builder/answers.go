package builder

import (
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BudgetText is what the eviction API says of a budget that allows nothing now.
const BudgetText = "Cannot evict pod as it would violate the pod's disruption budget."

// WithCause adds a cause to an answer of the API server.
func WithCause(err *apierrors.StatusError, cause metav1.CauseType, message string) *apierrors.StatusError {
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause, Message: message})
	return err
}

// BlockedAnswer is what the eviction API answers while the budget allows nothing.
func BlockedAnswer() *apierrors.StatusError {
	return WithCause(apierrors.NewTooManyRequests(BudgetText, 0), policyv1.DisruptionBudgetCause,
		"The disruption budget web needs 3 healthy pods and has 3 currently")
}
