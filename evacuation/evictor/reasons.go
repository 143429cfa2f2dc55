package evictor

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// reasons are the reasons of the events, one per class.
var reasons = map[translate.Result]string{
	translate.ResultBudget:               events.ReasonEvictionBlocked,
	translate.ResultBudgetNever:          events.ReasonBudgetNeverAllows,
	translate.ResultBudgetNotSynced:      events.ReasonBudgetNotSynced,
	translate.ResultBudgetRefuses:        events.ReasonBudgetRefuses,
	translate.ResultSeveralBudgets:       events.ReasonSeveralBudgets,
	translate.ResultOwnWebhook:           events.ReasonWebhookNotReady,
	translate.ResultWebhook:              events.ReasonWebhookRefuses,
	translate.ResultOverloaded:           events.ReasonServerOverloaded,
	translate.ResultForbidden:            events.ReasonEvictionForbidden,
	translate.ResultNamespaceTerminating: events.ReasonNamespaceTerminating,
	translate.ResultConflict:             events.ReasonEvictionConflict,
	translate.ResultServerTimeout:        events.ReasonEvictionTimeout,
	translate.ResultDeadline:             events.ReasonEvictionTimeout,
	translate.ResultServerError:          events.ReasonServerError,
	translate.ResultOther:                events.ReasonEvictionFailed,
}

// settleConflict tells a replaced pod from a passing conflict, by what a live
// look at the pod's name found: nil means that there is none.
func settleConflict(target, found *corev1.Pod) translate.Result {
	switch {
	case found == nil:
		return translate.ResultGone
	case found.UID != target.UID:
		return translate.ResultReplaced
	default:
		return translate.ResultConflict
	}
}
