// Package interceptor is the SDK for programs that do something before a pod is
// evicted. It is light: it links neither the API server nor CEL.
package interceptor

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Interceptor does what has to be done before a pod is evicted. See Add.
//
// Evacuate is called when it is this interceptor's turn for a pod, and again and
// again until it says that it is done or its turn ends: after Progress.CheckAfter,
// when an object that Options.Watches maps to the request changes, before every
// heartbeat, and after a restart. So it looks at what there is and does what is
// missing (level-triggered, idempotent), and it returns soon: work that takes
// longer is started here and looked at later. Its context ends after
// Options.Timeout, and at once when the turn ends.
//
// An error (a panic counts as one) is retried with backoff and reported as an
// event; the request stays with this interceptor, without a heartbeat, so that an
// interceptor that fails for ever is passed over after the heartbeat deadline (20
// minutes). Everything else it returns says that work goes on: who finds that
// nothing goes on any more is done, or returns an error (statement 111).
//
// To decline, return Done without having touched the pod (statement 110).
//
// To end the pod, prefer its eviction subresource to a deletion, which ignores
// budgets (statement 113).
type Interceptor interface {
	Evacuate(ctx context.Context, t Target) (Progress, error)
}

// Canceler is implemented by interceptors that can undo what they began.
//
// Cancel is called when the turn ends before Evacuate was done: the request was
// canceled or deleted, or the interceptor was passed over. It is called again
// until it returns nil. No Evacuate for the same pod runs until then, not even for
// a new request. Who cannot go back returns ErrPointOfNoReturn: then Evacuate is
// called on until it is done; it has nobody to report to, and stops if others have
// been given the turn.
//
// It is not called once the pod has ended: what is left then ends with the pod, or is
// for Gone.
//
// That a Cancel has succeeded is kept in memory alone; the API takes no reports
// from an interceptor that is not active. So after a restart it is called once more
// for every request that still exists and whose turn ended that way, even if
// Evacuate never came so far as to report: it must not mind that there is nothing
// to undo. Only for a request that was deleted while no process ran is it never
// called. Interceptors that leave marks on objects should look for abandoned ones
// when they start.
type Canceler interface {
	Cancel(ctx context.Context, t Target) error
}

// Goner is implemented by interceptors that leave something outside of the pod, which
// does not end with it: a mark on a load balancer, a lock, a silence of alerts.
//
// Gone is called when the pod ends in the middle of the turn, before Evacuate was done,
// whoever ended it, the interceptor itself included; and for an interceptor that is no
// Canceler also when the request is deleted in the middle of its turn. It is called
// again until it returns nil. There is nothing to evacuate any more and nothing to go
// back to: it only takes away what is left, and a pod of the same name may be there.
//
// Like that of Cancel, its success is kept in memory alone: after a restart it is called
// once more for every request that still exists and ended that way, even if Evacuate
// never came so far as to report.
type Goner interface {
	Gone(ctx context.Context, t Target) error
}

// ErrPointOfNoReturn is returned by a Cancel that comes too late.
var ErrPointOfNoReturn = errors.New("past the point of no return")

// Target is the pod that an interceptor is asked to prepare.
type Target struct {
	// Request is the EvictionRequest, RequestUID its UID.
	Request    types.NamespacedName
	RequestUID types.UID
	// Pod and PodUID identify the pod. Every call that changes the pod must carry
	// the UID as a precondition.
	Pod    types.NamespacedName
	PodUID types.UID
	// NodeName is the node the pod runs on, empty if not known.
	NodeName string
	// Labels are the pod's, as the request has them.
	Labels map[string]string
	// Requesters are the names of those who want the eviction.
	Requesters []string
	// ActivatedAt is when the turn began, zero if that is not known any more: in a
	// Cancel after a restart. StartedAt is the startTime of this interceptor, zero
	// before its first report. Both are by this machine's clock, as far as its
	// difference to the API server's is known (see ServerClock).
	ActivatedAt, StartedAt time.Time
}

// Progress is how far an interceptor is.
type Progress struct {
	// Done hands over to the next interceptor.
	Done bool
	// Message for people, cut at v1alpha1.MaxMessageLength characters. When it
	// changes it is reported at once, but never within 60 s of the last heartbeat
	// (statement 43); then it goes with the next one.
	Message string
	// ExpectedFinishTime is when the interceptor expects to be done; zero if that is
	// not known. One in the past is not reported.
	ExpectedFinishTime time.Time
	// CheckAfter is when Evacuate is called again at the latest; zero leaves it to
	// the watches and the next heartbeat.
	CheckAfter time.Duration
	// PointOfNoReturn: from now on there is no way back. Cancel is not called any
	// more; Evacuate goes on until it is done. As this is kept in memory, let Cancel
	// return ErrPointOfNoReturn, too, for the process after a restart.
	PointOfNoReturn bool
}
