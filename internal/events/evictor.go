package events

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events of the imperative evictor, one per class of answer.
const (
	ReasonEvictionAccepted     = "EvictionAccepted"
	ReasonEvictionBlocked      = "EvictionBlocked"
	ReasonBudgetNeverAllows    = "BudgetNeverAllows"
	ReasonBudgetNotSynced      = "BudgetNotSynced"
	ReasonBudgetRefuses        = "BudgetRefuses"
	ReasonSeveralBudgets       = "SeveralBudgets"
	ReasonWebhookNotReady      = "WebhookNotReady"
	ReasonWebhookRefuses       = "WebhookRefuses"
	ReasonServerOverloaded     = "ServerOverloaded"
	ReasonEvictionForbidden    = "EvictionForbidden"
	ReasonNamespaceTerminating = "NamespaceTerminating"
	ReasonEvictionConflict     = "EvictionConflict"
	ReasonEvictionTimeout      = "EvictionTimeout"
	ReasonServerError          = "ServerError"
	ReasonEvictionFailed       = "EvictionFailed"
	ReasonEvictionNotSupported = "EvictionNotSupported"
	ReasonDeletedDespiteBudget = "DeletedDespiteBudget"
)

// Reasons of the events of the requester leases.
const (
	ReasonRequesterExpired   = "RequesterExpired"
	ReasonRequesterWithdrawn = "RequesterWithdrawn"
)

// Actions of the events of the imperative evictor and of the requester leases.
const (
	actionEvict           = "EvictPod"
	actionDelete          = "DeletePod"
	actionRemoveRequester = "RemoveRequester"
)

// EvictionAccepted says that the API server accepted the eviction. Trigger is
// what made this attempt happen: first, backoff or budget.
func EvictionAccepted(pod, trigger string) Event {
	return normal(ReasonEvictionAccepted, actionEvict, "The eviction of pod %s was accepted (%s).", pod, occasion(trigger))
}

// EvictionRefused says that an attempt failed. The reason is the one of its class
// of answers, the sentence explains it; retries counts the failed attempts so
// far.
func EvictionRefused(reason, pod, trigger, sentence string, retries int32) Event {
	return warning(reason, actionEvict, "The eviction of pod %s failed (attempt %d, %s). %s", pod, retries, occasion(trigger), sentence)
}

// DeletedDespiteBudget says that a pod was deleted in spite of its PodDisruptionBudget. The
// sentence says of which, and who has consented.
func DeletedDespiteBudget(pod, sentence string) Event {
	return warning(ReasonDeletedDespiteBudget, actionDelete, "Pod %s: %s", pod, sentence)
}

// occasion says for people what made an attempt happen.
func occasion(trigger string) string {
	switch trigger {
	case "first":
		return "the first try of this manager"
	case "backoff":
		return "after a pause"
	case "budget":
		return "because a budget made room"
	default:
		return trigger
	}
}

// EvictionNotSupported says that the pod will not be evicted because of its kind
// (ruling R13). The message is the one of the status.
func EvictionNotSupported(message string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: ReasonEvictionNotSupported, Action: actionEvict, Note: message + "."}
}

// RequesterExpired says that a requester was removed because its lease expired: no call
// was recorded for that long. Display names the caller for people and may be empty.
func RequesterExpired(requester, display string, silence time.Duration) Event {
	return normal(ReasonRequesterExpired, actionRemoveRequester, "Requester %s (%s) was removed: no call for an eviction was recorded for %s.", requester, caller(display), silence.Round(time.Second))
}

// RequesterLeaseMissing says that a requester was removed because the lease it
// names does not exist.
func RequesterLeaseMissing(requester, lease string) Event {
	return normal(ReasonRequesterExpired, actionRemoveRequester, "Requester %s was removed: its lease %s does not exist.", requester, lease)
}

// RequesterWithdrawn says that a requester was removed because the drain of its node was
// canceled: none of the markers has been there for the debounce.
func RequesterWithdrawn(requester, display, node string, markers []string, debounce time.Duration) Event {
	return normal(ReasonRequesterWithdrawn, actionRemoveRequester, "Requester %s (%s) was removed: node %s is not drained any more (%s gone for %s).",
		requester, caller(display), node, strings.Join(markers, ", "), debounce)
}

func caller(display string) string {
	if display == "" {
		return "an unknown caller"
	}
	return display
}
