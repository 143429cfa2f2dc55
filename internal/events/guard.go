package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events of the guard.
const (
	ReasonGuardHeld      = "GuardHeld"
	ReasonGuardNameTaken = "GuardNameTaken"
)

// actionGuard is the action of the events of the guard.
const actionGuard = "GuardPods"

// GuardHeld says that the guard of the pod stays closed although its interceptors
// are done. Why is a sentence without its full stop.
func GuardHeld(why string) Event {
	return Event{
		Type: corev1.EventTypeWarning, Reason: ReasonGuardHeld, Action: actionGuard,
		Note: fmt.Sprintf("The pod is not evicted, its guard stays closed: %s.", why),
	}
}

// GuardNameTaken says that a budget that is not ours has the name of the guard's.
func GuardNameTaken(budget string) Event {
	return Event{
		Type: corev1.EventTypeWarning, Reason: ReasonGuardNameTaken, Action: actionGuard,
		Note: fmt.Sprintf("The guard's budget would be named %s, too, so the pods of this namespace have no guard. Rename this one.", budget),
	}
}
