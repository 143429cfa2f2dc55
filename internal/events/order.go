package events

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Reasons of the events of the interceptor that keeps the order of the pods of a node.
const (
	ReasonOrderTimedOut = "OrderTimedOut"
	ReasonOrderCircle   = "OrderCircle"
)

// actionOrder is the action of these events.
const actionOrder = "OrderEvictions"

// OrderTimedOut says that a pod goes on although pods are left that leave first. They are a list
// for people.
func OrderTimedOut(pod, node string, timeout time.Duration, left string) Event {
	return warning(ReasonOrderTimedOut, actionOrder, "Pod %s waits no longer after %s, although pods are left on node %s that leave before it: %s.", pod, duration.HumanDuration(timeout), node, left)
}

// OrderCircle says that a pod does not wait for pods that would wait for it. They are a list for
// people.
func OrderCircle(pod, others string) Event {
	return warning(ReasonOrderCircle, actionOrder, "Pod %s does not wait for pods that wait for it, as spec.after of their registrations says: %s.", pod, others)
}
