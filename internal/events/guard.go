package events

import (
	"strings"
)

// Reasons of the events of the guard.
const (
	ReasonGuardHeld          = "GuardHeld"
	ReasonGuardNameTaken     = "GuardNameTaken"
	ReasonGuardBudgetChanged = "GuardBudgetChanged"
	ReasonGuardLabelSelected = "GuardLabelSelected"
	ReasonGuardLabelLeft     = "GuardLabelLeft"
)

// actionGuard is the action of the events of the guard.
const actionGuard = "GuardPods"

// GuardHeld says that the guard of the pod stays closed although its interceptors
// are done. Why is a sentence without its full stop.
func GuardHeld(why string) Event {
	return warning(ReasonGuardHeld, actionGuard, "The pod is not evicted, its guard stays closed: %s.", why)
}

// GuardNameTaken says that a budget that is not ours has the name of the guard's.
func GuardNameTaken(budget string) Event {
	return warning(ReasonGuardNameTaken, actionGuard, "The guard's budget would be named %s, too, so the pods of this namespace have no guard. Rename this one.", budget)
}

// GuardBudgetChanged says that the guard's budget differs from what the guard writes, and
// that writing it again does not help. Fields are those that differ, such as spec.selector.
// InForce: it protects nevertheless, Unready: except pods that are not Ready.
func GuardBudgetChanged(fields []string, inForce, unready bool) Event {
	effect := "It protects the pods all the same."
	switch {
	case !inForce:
		effect = "It protects no pod. Exempt it from what changes it."
	case unready:
		effect = "It protects pods that are Ready, and others only while Drawbridge is up."
	}
	return warning(ReasonGuardBudgetChanged, actionGuard, "Something changes this budget whenever the guard writes it: %s. %s", strings.Join(fields, ", "), effect)
}

// GuardLabelSelected says that a budget that is not the guard's selects pods by the guard's
// label.
func GuardLabelSelected(label string) Event {
	return warning(ReasonGuardLabelSelected, actionGuard, "This budget selects pods by %s, a label that only the guard writes. It keeps no guard away, and where it selects a guarded pod, "+
		"evictions answer 500 while Drawbridge is down. Select by a label of the application.", label)
}

// GuardLabelLeft says that the guard leaves its label as it is on the pods of a
// controller, which selects them by it.
func GuardLabelLeft(label string) Event {
	return warning(ReasonGuardLabelLeft, actionGuard, "This controller selects its pods by %s, a label that only the guard writes. A pod whose label changes would be replaced, "+
		"so the guard leaves the label as it is. Take it out of the selector and the template.", label)
}
