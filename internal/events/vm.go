package events

// Reasons of the events of the interceptors of EvacuationPolicies.
const (
	ReasonWorkloadMarked    = "WorkloadMarked"
	ReasonWorkloadUnmarked  = "WorkloadUnmarked"
	ReasonEvacuationGivenUp = "EvacuationGivenUp"
	ReasonMigrationCreated  = "MigrationCreated"
	ReasonMigrationFailed   = "MigrationNotCreated"
	ReasonPoliciesOverlap   = "PoliciesOverlap"
	ReasonMarkDiscarded     = "MarkDiscarded"
	ReasonMarkRejected      = "MarkRejected"
	ReasonMarkKept          = "MarkKept"
)

const (
	actionMark    = "MarkWorkload"
	actionUnmark  = "UnmarkWorkload"
	actionGiveUp  = "GiveUpEvacuation"
	actionMigrate = "CreateMigration"
	actionCover   = "CoverPods"
)

// WorkloadMarked says that a workload was marked for evacuation.
func WorkloadMarked(kind, name, policy string) Event {
	return normal(ReasonWorkloadMarked, actionMark, "%s %s is marked for evacuation, by EvacuationPolicy %s.", kind, name, policy)
}

// WorkloadUnmarked says that the mark was removed.
func WorkloadUnmarked(kind, name, policy string) Event {
	return normal(ReasonWorkloadUnmarked, actionUnmark, "%s %s is not marked for evacuation any more, by EvacuationPolicy %s.", kind, name, policy)
}

// EvacuationGivenUp says that an evacuation has finally failed, and what follows.
func EvacuationGivenUp(kind, name, why string, held bool) Event {
	next := "The pod will be evicted."
	if held {
		next = "The pod is kept."
	}
	return warning(ReasonEvacuationGivenUp, actionGiveUp, "The evacuation of %s %s is given up: %s. %s", kind, name, why, next)
}

// MarkDiscarded says that a mark, or its removal, succeeded but did not last. Why is a
// sentence.
func MarkDiscarded(policy, why string) Event {
	return warning(ReasonMarkDiscarded, actionMark, "EvacuationPolicy %s: %s It is tried again with growing pauses.", policy, why)
}

// MarkRejected says that the API server refuses a mark. Why is a sentence with its
// answer.
func MarkRejected(policy, why string) Event {
	return warning(ReasonMarkRejected, actionMark, "EvacuationPolicy %s: %s It is tried again with growing pauses.", policy, why)
}

// MarkKept says that the platform's own mark cannot be removed: the platform has no way
// to do so.
func MarkKept(kind, name, path string) Event {
	return warning(ReasonMarkKept, actionUnmark, "The platform continues to evacuate %s %s: it marked it itself and does not serve %s.", kind, name, path)
}

// PoliciesOverlap says that another EvacuationPolicy covers a pod of this one. How
// names the policy and the pod, without a full stop.
func PoliciesOverlap(how string) Event {
	return warning(ReasonPoliciesOverlap, actionCover, "Pods are covered by more than one policy: %s.", how)
}

// MigrationCreated says that a migration was created. Attempt counts from 1.
func MigrationCreated(kind, name, workload string, attempt int) Event {
	return normal(ReasonMigrationCreated, actionMigrate, "%s %s is created to evacuate %s (attempt %d).", kind, name, workload, attempt)
}

// MigrationNotCreated says that the API server refused a migration.
func MigrationNotCreated(kind, workload string, err error) Event {
	return warning(ReasonMigrationFailed, actionMigrate, "%s to evacuate %s cannot be created: %s", kind, workload, err)
}
