package request

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// evictReasons are the reasons of the events, one per class.
var evictReasons = map[EvictResult]string{
	ResultBudget:               events.ReasonEvictionBlocked,
	ResultBudgetNotSynced:      events.ReasonBudgetNotSynced,
	ResultBudgetRefuses:        events.ReasonBudgetRefuses,
	ResultSeveralBudgets:       events.ReasonSeveralBudgets,
	ResultOwnWebhook:           events.ReasonWebhookNotReady,
	ResultWebhook:              events.ReasonWebhookRefuses,
	ResultOverloaded:           events.ReasonServerOverloaded,
	ResultForbidden:            events.ReasonEvictionForbidden,
	ResultNamespaceTerminating: events.ReasonNamespaceTerminating,
	ResultConflict:             events.ReasonEvictionConflict,
	ResultServerTimeout:        events.ReasonEvictionTimeout,
	ResultDeadline:             events.ReasonEvictionTimeout,
	ResultServerError:          events.ReasonServerError,
	ResultOther:                events.ReasonEvictionFailed,
}

// evictSettleConflict tells a replaced pod from a passing conflict, by what a live
// look at the pod's name found: nil means that there is none.
func evictSettleConflict(target, found *corev1.Pod) EvictResult {
	switch {
	case found == nil:
		return ResultGone
	case found.UID != target.UID:
		return ResultReplaced
	default:
		return ResultConflict
	}
}
