package webhook

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// ReplacementMode is the answer to a call by name for a pod that has already left and has
// a replacement elsewhere (callers.md, section 9).
type ReplacementMode string

// Modes of the replacement guard.
const (
	// ReplacementNotFound answers 404, which ends the caller's loop cleanly.
	ReplacementNotFound ReplacementMode = "NotFound"
	// ReplacementEvict treats it as a new eviction: no guard.
	ReplacementEvict ReplacementMode = "Evict"
	// ReplacementTooManyRequests answers 429 until the window is over.
	ReplacementTooManyRequests ReplacementMode = "TooManyRequests"
)

// Source is where an object was read from.
type Source int

const (
	// Cached objects come from the informer and may lag behind.
	Cached Source = iota
	// Live objects come from the API server.
	Live
)

// Input is everything that a decision depends on.
type Input struct {
	Call Call
	// Own: the caller is our own account.
	Own bool
	Now time.Time

	// Pod of that name, nil if there is none, and where that is known from.
	Pod       *corev1.Pod
	PodSource Source
	// Stale: a live read has already shown that the preconditions of this call do not
	// hold. They never will again: UIDs and resource versions do not come back.
	Stale bool

	// Request for this pod, nil if there is none.
	Request       *v1alpha1.EvictionRequest
	RequestSource Source

	// Interceptors of the pod; only resolved if no request runs.
	Interceptors []string

	// GroupsHidden: the pod does not show whether it belongs to a group, because the API
	// server is of the one version whose field for that our types do not have.
	GroupsHidden bool

	// Acts are the interceptors of the request's plan under whose name the caller
	// may act, because their registrations name its account.
	Acts []string

	// AskFirst: at least one of Interceptors has a Preflight. Preflights are their
	// answers about Pod, nil until they were needed.
	AskFirst   bool
	Preflights []Asked

	// Start says whether one more request may begin on the pod's node now.
	Start Start

	// Written is what we ourselves wrote for this pod and requester a moment ago.
	Written Written
	// LeaseName is the requester's lease for the pod's node. LeaseAlive: it exists
	// and has not run out.
	LeaseName  string
	LeaseAlive bool

	// Predecessors are the requests for pods that had this name before, for calls
	// by name.
	Predecessors []v1alpha1.EvictionRequest
	// LivePredecessor says that the predecessor in question was read live.
	LivePredecessor bool
	// LeftLease is the lease under which the caller asked for that predecessor.
	LeftLease LeftLease
	// Node of the pod. Only known after it was needed, from a live read; if the guard only
	// denies, from the informer.
	Node translate.NodeView

	Replacement ReplacementMode
	// ReplacementWindow is how long after its eviction a pod's replacement on another node
	// is guarded.
	ReplacementWindow time.Duration

	// GuardView is the guard by a budget.
	GuardView GuardView
	// Native is what the pod's native Eviction waits for. It counts at the last stage of our
	// request, which stands for one turn in that Eviction, and without a request.
	Native NativeTurn
	// Stalled says why the active interceptor makes no progress; empty if it does or that
	// is unknown.
	Stalled string
}

// NativeTurn is the Position-th of Total responders, which has the turn in a native Eviction.
// The zero value means that there is no Eviction.
type NativeTurn struct {
	Responder       string
	Position, Total int
	// Last: it is the last one, which evicts. Then Responder is empty.
	Last bool
	// Theirs: controllers of the cluster's own move the Eviction, and one of them evicts. It calls
	// like anybody else.
	Theirs bool
	// Planned: the pod's interceptors have a turn in it.
	Planned bool
}

// LeftLease is what is known about the lease of a caller that requested a pod that has
// left. The zero value means that there is none.
type LeftLease struct {
	// Stands: it has not expired.
	Stands bool
	// HeardAt is the last recorded call. There may have been calls for RenewEvery longer.
	HeardAt time.Time
	// RenewEvery is how often calls renew it at most.
	RenewEvery time.Duration
}

// Asked is what one interceptor's Preflight said.
type Asked struct {
	// Interceptor is its name.
	Interceptor string
	// Verdict, unless it Failed to give one.
	Verdict preflight.Verdict
	Failed  bool
}

// Start says whether one more request may begin on a node.
type Start int

const (
	// StartFree says that no limit counts for this caller.
	StartFree Start = iota
	// StartLimited says that a limit counts and has not been asked yet.
	StartLimited
	// StartGranted says that there was room, which is taken now.
	StartGranted
	// StartRefused says that too many have begun.
	StartRefused
)

// Written bridges the time until the informer shows our own write. The zero
// value is none.
type Written struct {
	// Request is the UID of the request we wrote to.
	Request types.UID
	// GracePeriodSeconds as written.
	GracePeriodSeconds *int64
}

// Need is what must be read before an Input can be decided.
type Need int

const (
	// NeedNothing says that the decision stands.
	NeedNothing Need = iota
	// NeedLivePod wants the live pod.
	NeedLivePod
	// NeedLiveRequest wants the live request.
	NeedLiveRequest
	// NeedLiveNode wants the pod's live node.
	NeedLiveNode
	// NeedPredecessor wants the predecessor's live request.
	NeedPredecessor
	// NeedPreflights wants the answers of the pod's interceptors.
	NeedPreflights
	// NeedStart wants room for one more request on the pod's node. It comes last:
	// what is granted is used.
	NeedStart
)

func (n Need) String() string {
	return [...]string{"Nothing", "LivePod", "LiveRequest", "LiveNode", "Predecessor", "Preflights", "Start"}[n]
}

// Action is what must be written before the verdict is given.
type Action int

const (
	// ActNothing writes nothing.
	ActNothing Action = iota
	// ActApply ensures the lease and applies the requester's entry, which creates or joins
	// the request.
	ActApply
	// ActRestart deletes the canceled request first.
	ActRestart
	// ActNotifyEnd records that the caller is notified of the end of a pod that it requested.
	ActNotifyEnd
)

func (a Action) String() string { return [...]string{"Nothing", "Apply", "Restart", "Tell"}[a] }

// Decision is the decision about a call: a need, or a verdict, perhaps with an action
// before it.
type Decision struct {
	Need    Need
	Action  Action
	Verdict translate.Verdict
	// LeftNode is the node the pod that was meant has left (ReasonReplacement).
	LeftNode string
	// Ended is the request for the pod whose end the caller is notified of (ActNotifyEnd).
	Ended *v1alpha1.EvictionRequest
}

// check is one rule. It returns false if it has nothing to say.
type check func(in *Input) (Decision, bool)

// checks in their order; the first that has something to say wins.
var checks = []check{
	podIsMissing,         // make sure there is a pod at all; the registry answers 404
	preconditionFails,    // make sure it is the pod that is meant
	podIsReplacement,     // make sure the successor of an evicted pod is left alone by who asked for its predecessor
	podIsEnding,          // make sure there is still something to protect
	requestDecides,       // make sure a request that exists decides, with the plan it was given
	nativeDecides,        // make sure the last responder of a native Eviction is not held
	nobodyIntercepts,     // make sure a plain pod costs nothing
	podIsNotSupported,    // make sure pods that no request can evict are not held
	podIsPending,         // make sure a pod that does nothing yet is not held
	callIsOwn,            // make sure we never become a requester of ourselves
	callIsLate,           // make sure an interceptor does not start again what has ended under its hands
	preflightsDecide,     // make sure a pod whose interceptors know better gets no request
	startIsLimited,       // make sure a caller that walks the node starts no storm
	interceptorsAreAsked, // somebody intercepts: start
}

// Decide decides about a call. It is pure and total: every input gets a need or a verdict.
// A dry run is decided like the real call and then allowed.
func Decide(in Input) Decision {
	for _, c := range checks {
		decision, ok := c(&in)
		if !ok {
			continue
		}
		decision = behindGuard(&in, decision)
		if in.Call.DryRun && decision.Need == NeedNothing {
			return Decision{Verdict: decision.Verdict.InDryRun()}
		}
		return decision
	}
	return Decision{Verdict: translate.Trouble(in.subject(), translate.ReasonInternalError)}
}

// subject is what every verdict on this input is about.
func (in *Input) subject() translate.Subject {
	about := translate.Subject{Namespace: in.Call.Namespace, Pod: in.Call.Pod, Requester: in.Call.Caller.Requester}
	if in.Pod != nil {
		about.PodUID = in.Pod.UID
	}
	if in.Request != nil {
		about.Request = in.Request.Name
	}
	return about
}

func need(n Need) (Decision, bool) { return Decision{Need: n}, true }

func say(v translate.Verdict) (Decision, bool) { return Decision{Verdict: v}, true }

// allow allows the call.
func (in *Input) allow(reason translate.Reason) (Decision, bool) {
	return say(translate.Allowed(in.subject(), reason))
}

// allowSeen allows the call if the pod was read live. The informer may show an earlier pod
// of that name, or an old phase, and allowing a call on that basis could evict an
// intercepted pod. Pods that do not concern us are not read.
func (in *Input) allowSeen(reason translate.Reason) (Decision, bool) {
	if in.PodSource != Live && in.intercepted() {
		return need(NeedLivePod)
	}
	return in.allow(reason)
}

// intercepted reports whether the pod concerns us.
func (in *Input) intercepted() bool {
	return in.Request != nil || in.Written != Written{} || len(in.Interceptors) > 0
}

// nothing is the answer of a check that has nothing to say.
func nothing() (Decision, bool) { return Decision{}, false }
