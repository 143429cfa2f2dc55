package evictor

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// reasons are the reasons of the events, one per class.
var reasons = map[answer.Result]string{
	answer.ResultBudget:               events.ReasonEvictionBlocked,
	answer.ResultBudgetNotSynced:      events.ReasonBudgetNotSynced,
	answer.ResultBudgetRefuses:        events.ReasonBudgetRefuses,
	answer.ResultSeveralBudgets:       events.ReasonSeveralBudgets,
	answer.ResultOwnWebhook:           events.ReasonWebhookNotReady,
	answer.ResultWebhook:              events.ReasonWebhookRefuses,
	answer.ResultOverloaded:           events.ReasonServerOverloaded,
	answer.ResultForbidden:            events.ReasonEvictionForbidden,
	answer.ResultNamespaceTerminating: events.ReasonNamespaceTerminating,
	answer.ResultConflict:             events.ReasonEvictionConflict,
	answer.ResultServerTimeout:        events.ReasonEvictionTimeout,
	answer.ResultDeadline:             events.ReasonEvictionTimeout,
	answer.ResultServerError:          events.ReasonServerError,
	answer.ResultOther:                events.ReasonEvictionFailed,
}

// settleConflict tells a replaced pod from a passing conflict, by what a live
// look at the pod's name found: nil means that there is none.
func settleConflict(target, found *corev1.Pod) answer.Result {
	switch {
	case found == nil:
		return answer.ResultGone
	case found.UID != target.UID:
		return answer.ResultReplaced
	default:
		return answer.ResultConflict
	}
}
