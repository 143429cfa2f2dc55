package grant

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UnknownGroup has the missing pods whose group nobody knows. It counts as another group,
// and its pods as missing in each.
const UnknownGroup = "?"

// MaxGrants is how many grants a budget records at a time.
const MaxGrants = 256

// Overtake is how much younger a request may be that is granted before one that waits for
// other groups.
const Overtake = 10 * time.Minute

// Rules are what one generation of a budget says.
type Rules struct {
	// Refused says that the spec is not well formed: nothing is granted. It is a reason of
	// the condition Accepted.
	Refused string
	// Grouped: pods are in groups, of which at most MaxGroups are disrupted at a time.
	Grouped   bool
	MaxGroups int
	// Spread: an owner may have pods in several groups, such as those of nodes. Else the
	// group of one pod tells that of its owner's missing ones.
	Spread bool
	// MaxUnavailable of each group: a number, or a percentage that is rounded up.
	MaxUnavailable intstr.IntOrString
	// Settle is how long a pod must be ready to be available, and MinInterval the time
	// between two grants.
	Settle, MinInterval time.Duration
	// Windows are when it grants; none is always.
	Windows Windows
	// Continue: outside of the windows there is no budget.
	Continue bool
}

// Pod is one that the budget covers and that has not ended.
type Pod struct {
	UID types.UID
	// Owner is what creates another pod in its place, empty if nothing does.
	Owner types.UID
	// Created tells which places have been filled again.
	Created time.Time
	// Group of the pod. Placed is false while it is not known: the pod has no node yet.
	Group  string
	Placed bool
	// Ready since that time.
	Ready      bool
	ReadySince time.Time
	// Leaving: it is being deleted, since that time.
	Leaving      bool
	LeavingSince time.Time
}

// Gone is a pod that has left without a grant.
type Gone struct {
	Owner types.UID
	Group string
	// Created is when the pod was, zero if nobody knows. At is when it left.
	Created, At time.Time
}

// Grant is what a budget has granted.
type Grant struct {
	Pod, Request, Owner types.UID
	Group               string
	At                  time.Time
	// Over: the request wants no eviction any more. What was granted to a pod that stays
	// is dropped.
	Over bool
	// UntilReady: what was granted to a pod that has left is not dropped before as many pods of
	// its owner are ready as should be there. Else one in its place is enough.
	UntilReady bool
}

// Budget is one budget and what is known of its pods.
type Budget struct {
	// Name orders budgets.
	Name  string
	Rules Rules
	// Blocked says which condition is not true, for people; empty if all are.
	Blocked string
	Pods    []Pod
	// Expected is how many pods an owner should have. Nothing is known of others, and
	// nothing is missing of them.
	Expected map[types.UID]int
	Grants   []Grant
	// Gone are pods that have left otherwise.
	Gone []Gone
	// LastGrant is when the last one was granted, and LastLeft when a pod with a grant last
	// began to leave.
	LastGrant, LastLeft time.Time
}

// Request is an eviction whose turn it is.
type Request struct {
	UID, Pod types.UID
	// Created orders requests, and then Name.
	Created time.Time
	Name    string
}

// Input of Step: budgets that share pods of waiting requests are decided together.
type Input struct {
	Budgets  []Budget
	Requests []Request
	Now      time.Time
}

// Wait says why a request waits.
type Wait struct {
	Request types.UID
	// Budget that refuses, the first by name. Group is that of the pod.
	Budget, Group string
	// Reason of the condition Granting, and Message for people: a sentence without
	// numbers that change all the time.
	Reason, Message string
	// Until is when it may be over, zero if that depends on pods or objects.
	Until time.Time
}

// Granted is a request that may go on.
type Granted struct {
	Request, Pod types.UID
	// Budgets are the indexes of those that record it: all of the pod's that did not yet.
	// None has to if the pod leaves anyway.
	Budgets []int
}

// Group is the state of one.
type Group struct {
	Name                         string
	Expected, Available, Waiting int
	// Disrupted is how many are not available or missing.
	Disrupted int
}

// State of a budget after the step.
type State struct {
	// Groups by name.
	Groups []Group
	// Grants to keep, with the new ones, and what is kept of those that left otherwise.
	Grants []Grant
	Gone   []Gone
	// LastGrant is when the last one was granted.
	LastGrant time.Time
	// Allowed is how many evictions of available pods would be granted now, Waiting how
	// many requests wait for this budget, and Covered how many pods there are.
	Allowed, Waiting, Covered int
	// Ungrouped is how many pods lack the label of the groups.
	Ungrouped int
	// Opening is the window that is open, else the next one; zero without windows.
	Opening Opening
	// Wait is that of the oldest request that this budget lets wait; nil if none does.
	Wait *Wait
}

// Decision is the result of a step.
type Decision struct {
	Granted []Granted
	Waiting []Wait
	// States are those of the budgets, in their order.
	States []State
	// WakeAt is when to step again although nothing has changed; zero is never.
	WakeAt time.Time
}
