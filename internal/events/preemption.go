package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// ReasonPreemptionNotAllowed is the reason of the event about budgets that the
// scheduler may not violate.
const ReasonPreemptionNotAllowed = "PreemptionNotAllowed"

const actionPreempt = "KeepBudget"

// BudgetKept tells a preemptor why a node is not used for it. Others is how many
// further nodes are not used either; victim and budget are namespace/name.
func BudgetKept(node string, others int, victim, budget string, disruptions, allowed, value, priority int32) Event {
	return preemptionNotAllowed(fmt.Sprintf(
		"Node %s is not used: to preempt %s, %s on it, would violate its PodDisruptionBudget %s, which allows %d now; only pods of priority %d or more may do that, this pod has %d.%s",
		node, victim, pods(disruptions), budget, allowed, value, priority, alsoNodes(others)))
}

// VictimUnknown tells a preemptor that a node is not used because a pod on it is too
// new.
func VictimUnknown(node string, others int, value, priority int32) Event {
	return preemptionNotAllowed(fmt.Sprintf(
		"Node %s is not used yet: it is not known whether a pod that would be preempted there may be; pods of priority %d or more need not wait for that, this pod has %d.%s",
		node, value, priority, alsoNodes(others)))
}

func preemptionNotAllowed(note string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: ReasonPreemptionNotAllowed, Action: actionPreempt, Note: note}
}

func pods(n int32) string {
	if n == 1 {
		return "1 pod of the budget"
	}
	return fmt.Sprintf("%d pods of the budget", n)
}

func alsoNodes(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " 1 more node is not used for such a reason."
	}
	return fmt.Sprintf(" %d more nodes are not used for such a reason.", n)
}
