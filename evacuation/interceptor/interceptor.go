package interceptor

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Interceptor does the work before a pod is evicted. See Add.
//
// Evacuate is called when it is this interceptor's turn for a pod, and repeatedly until
// it returns Done or its turn ends: after Progress.CheckAfter, when an object that
// Options.Watches maps to the request changes, before every heartbeat, and after a
// restart. It must be level-triggered and idempotent, and return soon: start longer work
// here and check it in later calls. Its context ends after Options.Timeout, at
// Target.Deadline, and immediately when the turn ends.
//
// An error (or panic) is retried with backoff and reported as an event. The request
// stays with this interceptor, without a heartbeat, so an interceptor that always fails
// is passed over after the heartbeat deadline (20 minutes). Any other result means that
// work continues: if work has stopped, return Done or an error (statement 111).
//
// To decline, return Done without changing the pod (statement 110).
//
// To terminate the pod, prefer its eviction subresource to a deletion, which ignores
// budgets (statement 113).
type Interceptor interface {
	Evacuate(ctx context.Context, t Target) (Progress, error)
}

// Canceler is implemented by interceptors that can undo their work.
//
// Cancel is called when the turn ends before Evacuate was done: the request was canceled
// or deleted, or the interceptor was passed over: by a deadline or a lost node perhaps
// without a turn, so that Evacuate was never called. It is called again until it returns
// nil. No Evacuate for the same pod runs until then, not even for a new request. If there
// is no way back, return ErrPointOfNoReturn: then Evacuate is called until it is done. Its
// results are not reported, and it stops if others got the turn.
//
// It is not called after the pod has ended: Gone cleans up whatever does not end with
// the pod.
//
// The success of a Cancel is kept only in memory, because the API accepts no reports
// from an inactive interceptor. So after a restart Cancel is called again for every
// existing request whose turn ended that way, even if Evacuate never reported: it must
// accept that there is nothing to undo. It is never called for a request that was
// deleted while no process ran. Interceptors that leave marks on objects should search
// for abandoned ones when they start.
type Canceler interface {
	Cancel(ctx context.Context, t Target) error
}

// Goner is implemented by interceptors that leave something outside of the pod that does
// not end with it: a mark on a load balancer, a lock, an alert silence.
//
// Gone is called when the pod ends during the turn, before Evacuate was done, no matter
// who ended it, including the interceptor itself. If the interceptor is no Canceler, it
// is also called when the request is deleted during its turn. It is called again until
// it returns nil. It only removes what is left; a new pod of the same name may exist.
//
// As for Cancel, success is kept only in memory: after a restart Gone is called again
// for every existing request that ended that way, even if Evacuate never reported.
type Goner interface {
	Gone(ctx context.Context, t Target) error
}

// ErrPointOfNoReturn is returned by a Cancel that comes too late.
var ErrPointOfNoReturn = errors.New("past the point of no return")

// ErrNotYet is returned, also wrapped, by a Cancel or Gone that works well and has to
// wait for something. It is called again after a few seconds, or when an object of
// Options.Watches changes, without an event.
var ErrNotYet = errors.New("not yet")

// Target is the pod that an interceptor should prepare.
type Target struct {
	// Request is the EvictionRequest, or for Native the Eviction; RequestUID its UID.
	Request    types.NamespacedName
	RequestUID types.UID
	// Native: the turn is one of Kubernetes' own API. See Options.NativeKey.
	Native bool
	// Pod and PodUID identify the pod. Every call that changes the pod must carry
	// the UID as a precondition.
	Pod    types.NamespacedName
	PodUID types.UID
	// NodeName is the node the pod runs on, empty if unknown.
	NodeName string
	// Labels are the pod's, as the request has them, or for Native the pod had them when
	// the turn began.
	Labels map[string]string
	// Requesters are the names of the requesters, for Native their keys.
	Requesters []string
	// ActivatedAt is when the turn began, zero if unknown, as in a Cancel after a
	// restart. StartedAt is the startTime of this interceptor, zero before its first
	// report; for Native it is then the same as ActivatedAt. Both use this machine's clock,
	// as far as its offset from the API server's is known (see ServerClock).
	ActivatedAt, StartedAt time.Time
	// Deadline is when the interceptor has to be done, because a requester does not wait
	// longer (status.deadline), by this machine's clock; zero if nobody has said so. It may
	// move. Then the turn is over, Cancel is called, and the pod is evicted.
	Deadline time.Time
	// NodeLost: the pod's node is lost (condition drawbridge.dev/NodeLost of the request), so
	// nothing that runs there can be reached. Evacuate is called when that changes. Whether
	// the turn goes on is said by onNodeLost of the interceptor's registration. Never for
	// Native.
	NodeLost bool
}

// Progress is the progress of an interceptor.
type Progress struct {
	// Done hands over to the next interceptor.
	Done bool
	// Message for people, cut at v1alpha1.MaxMessageLength characters. A change is
	// reported immediately, or with the next heartbeat if the last one was less than 60
	// s ago (statement 43).
	Message string
	// ExpectedFinishTime is when the interceptor expects to finish; zero if unknown.
	// Times in the past are not reported, nor those that are more than 9 years ahead.
	ExpectedFinishTime time.Time
	// CheckAfter is after how long Evacuate is called again at the latest; zero leaves
	// it to the watches and the next heartbeat.
	CheckAfter time.Duration
	// PointOfNoReturn: from now on there is no way back. It is reported at once, and the
	// request goes on even if its last requester leaves. Cancel is no longer called, unless
	// the requester was faster; then return ErrPointOfNoReturn from it. Evacuate continues
	// until it is done. The native API has no word for it: a requester can always leave.
	PointOfNoReturn bool
}
