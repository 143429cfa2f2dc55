package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events about writes of ours that the API server refuses: the first one and
// a cause of internal/refused.
const (
	ReasonRefusedBy     = "RefusedBy"
	ReasonWriteAccepted = "WriteAccepted"
)

// WriteRefused says that the API server refuses a write of ours for good. Action is one of
// a closed set, which tells the writes apart; doing completes "Drawbridge cannot ...", and
// words are the server's.
func WriteRefused(cause, action, doing, words string) Event {
	return Event{
		Type: corev1.EventTypeWarning, Reason: ReasonRefusedBy + cause, Action: action,
		Note: fmt.Sprintf("Drawbridge cannot %s: %s. It is tried again, at least every five minutes.", doing, strings.TrimSuffix(words, ".")),
	}
}

// WriteAccepted says that the API server accepts a write that it has refused.
func WriteAccepted(action, doing string) Event {
	return Event{
		Type: corev1.EventTypeNormal, Reason: ReasonWriteAccepted, Action: action,
		Note: fmt.Sprintf("Drawbridge can %s again.", doing),
	}
}
