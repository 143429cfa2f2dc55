package chaos

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// PodSeen is a state of a pod that the observer saw.
type PodSeen struct {
	// At is when it was seen, never before it was true.
	At time.Time
	// Gone: it is no more; Pod is its last state.
	Gone bool
	// Gap: what led to this state was missed.
	Gap bool
	Pod *corev1.Pod
}

// RequestSeen is a state of an EvictionRequest that the observer saw.
type RequestSeen struct {
	At      time.Time
	Gone    bool
	Request *v1alpha1.EvictionRequest
}

// EvictionSeen is a state of an Eviction of lifecycle.k8s.io that the observer saw.
type EvictionSeen struct {
	At       time.Time
	Gone     bool
	Eviction *lifecyclev1alpha1.Eviction
}

// WishSeen is a state of an EvictionRequest of lifecycle.k8s.io that the observer saw.
type WishSeen struct {
	At   time.Time
	Gone bool
	Wish *lifecyclev1alpha1.EvictionRequest
}

// Deed is what an interceptor did.
type Deed string

// The deeds.
const (
	// Began: its start and heartbeat were accepted; Told is the heartbeat's time.
	Began Deed = "began"
	// Finished: its work is done. It is noted before the completion is reported.
	Finished Deed = "finished"
	// Undone: what was finished for a pod of machines has been undone.
	Undone Deed = "undone"
	// Lied: it has completed in the name of Victim, and that was accepted.
	Lied Deed = "lied"
)

// Entry is a line of the interceptors' ledger: what they did, whatever the product
// made of it.
type Entry struct {
	At   time.Time
	Deed Deed
	// Request is empty for the platform of machines, who knows only pods. Of native responders it
	// is the UID of the Eviction.
	Request     types.UID
	Pod         types.UID
	Interceptor string
	// Told is the time it reported.
	Told time.Time
	// Victim of a lie.
	Victim string
}

// Call is an eviction, as the API server's log has it.
type Call struct {
	At   time.Time
	User string
	Name string
	// UID of the precondition; empty if there was none.
	UID types.UID
	// Code of the answer; 0 if the server died over it.
	Code int
}

// BudgetSeen is a state of a PodDisruptionBudget that the observer saw.
type BudgetSeen struct {
	At     time.Time
	Gone   bool
	Budget *policyv1.PodDisruptionBudget
}

// EvictionBudgetSeen is a state of an EvictionBudget that the observer saw.
type EvictionBudgetSeen struct {
	At     time.Time
	Gone   bool
	Budget *v1alpha1.EvictionBudget
}

// Attempt is what somebody tried who makes trouble, as he knows it himself.
type Attempt struct {
	At   time.Time
	Kind TroubleKind
	// What was tried, for people.
	What string
	// Accepted: the API server has taken it, or the manager's port has decided on it.
	// False also if there was no answer.
	Accepted bool
	// Answer in a few words.
	Answer string
}

// Deletion is a pod that the managers have asked the API server to delete, as its log has it.
type Deletion struct {
	At time.Time
	// Name is empty if it was asked for all pods of some kind.
	Name string
	// UID of the precondition; empty if there was none.
	UID types.UID
	// Code of the answer; 0 if the server died over it, and has not noted the precondition.
	Code int
}

// Ordered is a maintenance.
type Ordered struct {
	// From is when it was about to be created.
	From time.Time
	// Node and the name of the requester that it is.
	Node, Requester string
	Order           Order
}

// Write is a write of the managers' account that the API server's log has: of what, by
// the words "RESOURCE NAME" or "RESOURCE/SUBRESOURCE NAME".
type Write struct {
	At time.Time
	Of string
	// Code of the answer; 0 if the server died over it.
	Code int
	// Native: it is one to lifecycle.k8s.io.
	Native bool
	// Unauthorized: the account had no permission, as far as the API server knew.
	Unauthorized bool
}

// Refused is when a policy engine has refused what: from before it was in force until it was
// in force no more.
type Refused struct {
	Interval
	Refusal Refusal
}

// firstPause is the managers' pause after the first refusal (internal/refused).
const firstPause = 5 * time.Second

// pausedUntil is until when the managers may still pause because of it. Each pause is twice as
// long as the one before, so none is longer than all before it and the first one together.
func (r Refused) pausedUntil() time.Time {
	return r.To.Add(r.To.Sub(r.From) + firstPause + 2*maxSkew)
}

// Finale is the drain after everything was called off, or the last one if the machine was
// too busy for those before.
type Finale struct {
	Node     string
	From, To time.Time
	// Ended: it came to its end, with exit code 0.
	Ended bool
	// Answer is what kubectl said last.
	Answer string
}

// Interval of time, both ends included.
type Interval struct{ From, To time.Time }

// Fact is something else worth knowing about a run, for people.
type Fact struct {
	At   time.Time
	What string
}

// History is all that is known of a run.
type History struct {
	Plan Plan
	// Names are the interceptors of each workload in their order, without the
	// default one.
	Names map[string][]string
	// Deadline is how long an interceptor may be silent, and Slack what the grain of
	// times and the errors of clocks may take off it.
	Deadline, Slack time.Duration

	// Responders are the native responders of each workload.
	Responders map[string][]lifecyclev1alpha1.TargetResponder
	// Manager is the user that the managers are.
	Manager string

	Pods     []PodSeen
	Requests []RequestSeen
	// Evictions and Wishes are those of lifecycle.k8s.io.
	Evictions []EvictionSeen
	Wishes    []WishSeen
	// LostThread: the observer has missed something of other objects than pods.
	LostThread bool
	Ledger     []Entry
	Calls      []Call
	// Budgets are all that were seen, the guard's and those of others.
	Budgets []BudgetSeen
	// EvictionBudgets are all that were seen.
	EvictionBudgets []EvictionBudgetSeen
	// Attempts of those who make trouble.
	Attempts []Attempt
	// Writes of the managers, without evictions, events and the leader's lease.
	Writes []Write
	// Deletions of pods by the managers.
	Deletions []Deletion
	// Ordered are the maintenances, also those that want no order.
	Ordered []Ordered
	// Refusals that there were.
	Refusals []Refused
	// Finale, nil if there was none.
	Finale *Finale
	// Unguarded says whose guard was not closed before the run began, although it is
	// always to be.
	Unguarded string
	// Away is when the webhook may have been out of reach.
	Away  []Interval
	Facts []Fact
	// Left are the pods and requests there are in the end, and Unsettled says why
	// the run did not come to rest, if it did not.
	LeftPods     []corev1.Pod
	LeftRequests []v1alpha1.EvictionRequest
	// LeftEvictions and LeftWishes are those of lifecycle.k8s.io.
	LeftEvictions []lifecyclev1alpha1.Eviction
	LeftWishes    []lifecyclev1alpha1.EvictionRequest
	// LeftNodes are the nodes as the maintenances have left them, in the order of their
	// numbers, before everybody else has uncordoned his.
	LeftNodes []corev1.Node
	Unsettled string
}

// away reports whether the webhook may have been out of reach at that time.
func (h *History) away(at time.Time) bool {
	for _, i := range h.Away {
		if !at.Before(i.From) && !at.After(i.To) {
			return true
		}
	}
	return false
}

// workload is the one of a pod, nil if it belongs to none.
func (h *History) workload(pod *corev1.Pod) *Workload {
	for i := range h.Plan.Workloads {
		if w := &h.Plan.Workloads[i]; w.Name == pod.Labels[appLabel] {
			return w
		}
	}
	return nil
}

const (
	// appLabel is builder.AppLabel.
	appLabel = "app"
	// foreign is the prefix of what others than Drawbridge leave on objects.
	foreign = "chaos.example.com/"
	// The policy marks the pod of a machine, and the platform says that the machine
	// has left it.
	evacuateAnnotation = foreign + "evacuate"
	movedAnnotation    = foreign + "moved"
)
