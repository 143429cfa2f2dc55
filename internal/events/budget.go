package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events of EvictionBudgets.
const (
	ReasonEvictionGranted = "EvictionGranted"
	ReasonBudgetWaits     = "BudgetWaits"
)

const actionGrant = "Grant"

// EvictionGranted says that budgets have granted the eviction of a pod. Group is empty if
// there are none.
func EvictionGranted(pod, budgets, group string) Event {
	of := ""
	if group != "" {
		of = fmt.Sprintf(" of group %q", group)
	}
	return normal(ReasonEvictionGranted, actionGrant, "The eviction of pod %s%s is granted by EvictionBudget %s.", pod, of, budgets)
}

// BudgetWaits says, in a sentence, why a budget grants nothing although evictions wait.
func BudgetWaits(why string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: ReasonBudgetWaits, Action: actionGrant, Note: why}
}
