package events

import "time"

// ReasonTaintDeletesPod is the reason of the event of pods that a taint deletes.
const ReasonTaintDeletesPod = "TaintDeletesPod"

const actionAnnounce = "AnnounceDeletion"

// TaintDeletesPod says that the taint eviction controller deletes a pod at that time, which
// nobody can hold, so that its interceptors begin now.
func TaintDeletesPod(pod, node, taint string, at time.Time) Event {
	return warning(ReasonTaintDeletesPod, actionAnnounce,
		"Kubernetes deletes pod %s at %s because of the taint %s of node %s. Drawbridge cannot hold that, so the interceptors begin now.",
		pod, at.UTC().Format(time.RFC3339), taint, node)
}
