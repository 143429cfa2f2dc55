package events

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events about writes of ours that the API server refuses: the first one and
// a cause of internal/refused.
const (
	ReasonRefusedBy     = "RefusedBy"
	ReasonWriteAccepted = "WriteAccepted"
)

// triedAgain ends the note of each of them.
const triedAgain = ". It is tried again, at least every five minutes."

// RefusedWords are the server's words in the note of an event of WriteRefused.
func RefusedWords(doing, note string) string {
	return strings.TrimSuffix(strings.TrimPrefix(note, cannot(doing)), triedAgain)
}

func cannot(doing string) string { return "Drawbridge cannot " + doing + ": " }

// WriteRefused says that the API server refuses a write of ours for good. Action is one of
// a closed set, which tells the writes apart; doing completes "Drawbridge cannot ...", and
// words are the server's.
func WriteRefused(cause, action, doing, words string) Event {
	return Event{
		Type: corev1.EventTypeWarning, Reason: ReasonRefusedBy + cause, Action: action,
		Note: cannot(doing) + strings.TrimSuffix(words, ".") + triedAgain,
	}
}

// WriteAccepted says that the API server accepts a write that it has refused.
func WriteAccepted(action, doing string) Event {
	return normal(ReasonWriteAccepted, action, "Drawbridge can %s again.", doing)
}
