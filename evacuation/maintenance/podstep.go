package maintenance

import (
	"cmp"
	"slices"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Condition is what a decision needs to know about a condition of a pod.
type Condition struct {
	// True is its status.
	True bool
	// Ours: its reason is the one that we write.
	Ours    bool
	Message string
	// Since is its lastTransitionTime, and Probed its lastProbeTime, with which the owner
	// may confirm that it still holds; zero if unset.
	Since, Probed time.Time
}

// Want says that one maintenance wants the pod evicted.
type Want struct {
	// Requester is its requester name.
	Requester string
	// Message is the maintenance's reason.
	Message string
	// Later: the pod belongs to a wave of the maintenance that has not begun on its node.
	Later bool
}

// Eviction is what a decision needs to know about the pod's EvictionRequest.
type Eviction struct {
	State v1alpha1.RequestState
	// Interceptor is the active one, and Message its message.
	Interceptor, Message string
	// Started: it is one of the pod's own interceptors, and has reported.
	Started bool
	// LastHeard is when it was activated or last reported, whichever is later; zero if
	// none is active.
	LastHeard time.Time
	// SilentAfter is PodPolicy.SilentAfter for this interceptor, if its registration has set
	// a deadline: half of that, but not before a report is overdue. Else 0.
	SilentAfter time.Duration
	// Never: a budget refuses the eviction that can never allow it.
	Never bool
	// Refused: the request was refused, which is final.
	Refused bool
}

// PodPolicy has the constants of PodStep.
type PodPolicy struct {
	// Wait is how long a pod without interceptors is left to its owner, after
	// EvacuationRequest has become True. KEP-4212 says 3 min.
	Wait time.Duration
	// SilentAfter is after how long without a report an interceptor, or an owner that has
	// set EvacuationInitiated, counts as blocking.
	SilentAfter time.Duration
	// OwnerDeadline is how long to wait for such an owner. Then the eviction is
	// requested.
	OwnerDeadline time.Duration
	// TerminatingAfter is how long after its grace period a pod counts as blocking.
	TerminatingAfter time.Duration
}

// PodInput is everything that a decision about a pod depends on.
type PodInput struct {
	// Skipped: it is the pod of a DaemonSet or a mirror pod.
	Skipped bool
	// Daemon is set if it is skipped, but a wave of DaemonSets takes it.
	Daemon *Daemon
	// Terminal: it has Succeeded or Failed, so there is nothing to evacuate.
	Terminal bool
	// Deleting: it ends at DeletionTime, which includes its grace period.
	Deleting     bool
	DeletionTime time.Time
	// Request and Initiated are its conditions EvacuationRequest and
	// EvacuationInitiated; nil if they are missing.
	Request, Initiated *Condition
	// Wants are sorted by Requester.
	Wants []Want
	// Kept is why the maintenances that drain the pod's node but are not among Wants keep
	// the pod; nil if there are none.
	Kept *Block
	// Joined are the requesters of maintenances in its EvictionRequest, sorted.
	Joined []string
	// Eviction is its EvictionRequest; nil if there is none.
	Eviction *Eviction
	// Intercepted: its eviction would be intercepted.
	Intercepted bool
	// AskedInVain is when the pod's owner was to be asked and the cluster refused the condition
	// that says so; zero if it did not. The owner's time runs all the same.
	AskedInVain time.Time
	// Failure is why the last join failed; empty if it did not.
	Failure string
	Policy  PodPolicy
	Now     time.Time
}

// Class is what a pod counts as.
type Class int

const (
	// ClassNone says that it need not leave.
	ClassNone Class = iota
	// ClassPending says that it must leave.
	ClassPending
	// ClassEvacuating says that it is being moved or removed.
	ClassEvacuating
)

func (c Class) String() string { return [...]string{"None", "Pending", "Evacuating"}[c] }

// Block is why a pod is stuck.
type Block struct {
	Reason  v1alpha1.BlockReason
	Message string
}

// Change is what to do about a condition.
type Change int

const (
	// ChangeNothing changes nothing.
	ChangeNothing Change = iota
	// ChangeTrue sets it True.
	ChangeTrue
	// ChangeFalse sets it False.
	ChangeFalse
	// ChangeRemove removes it.
	ChangeRemove
)

func (c Change) String() string { return [...]string{"Nothing", "True", "False", "Remove"}[c] }

// PodDecision is the decision about a pod.
type PodDecision struct {
	// Request and Initiated are the changes of its conditions; Message is that of
	// EvacuationRequest if that becomes True.
	Request, Initiated Change
	Message            string
	// Join and Leave are the requesters that join and leave its request.
	Join, Leave []string
	// Evict: it is to be evicted now, without a request.
	Evict bool
	Class Class
	// OwnerUntil is when its eviction is requested, while it is left to an owner that has
	// not answered yet; zero otherwise.
	OwnerUntil time.Time
	// Block is nil if it makes progress.
	Block *Block
	// WakeAt is when to decide again; zero if only an event can change the decision.
	WakeAt time.Time
}

// PodStep decides about one pod. It is pure and total.
//
// The eviction of a pod with interceptors is requested immediately. A pod without is left
// to its owner for a while (KEP-4212, "Pod API"): if the owner sets EvacuationInitiated
// to True, the pod is left to it until Policy.OwnerDeadline after its last report. If it
// sets False, or nothing for Policy.Wait, the eviction is requested. Before all that, the pod
// waits for its wave to begin.
func PodStep(in PodInput) PodDecision {
	if in.Daemon != nil && !in.Terminal {
		return in.daemonStep()
	}
	// A pod that has ended on a drained node keeps its conditions.
	ended := in.Terminal && len(in.Wants) > 0
	if in.Skipped || in.Terminal {
		in.Wants, in.Kept = nil, nil
	}
	later := in.dropLater()
	d := PodDecision{Leave: in.leave()}
	if len(in.Wants) == 0 {
		if !ended {
			d.Request, d.Initiated = removeOurs(in.Request), removeOurs(in.Initiated)
		}
		if in.Kept != nil || later {
			d.Class = ClassPending
			d.Block, d.WakeAt = in.stays()
		}
		return d
	}
	d.Request, d.Message = in.request()
	d.Class = ClassPending
	if in.Deleting {
		if in.Initiated != nil && in.Initiated.True {
			d.Class = ClassEvacuating
		}
		d.Block, d.WakeAt = in.ending()
		return d
	}
	d.Initiated = in.initiated()
	initiated := in.Initiated != nil && in.Initiated.True && d.Initiated != ChangeFalse || d.Initiated == ChangeTrue
	if initiated {
		d.Class = ClassEvacuating
	}
	d.Join, d.WakeAt = in.join()
	if in.Initiated == nil || in.Initiated.Ours {
		d.OwnerUntil = d.WakeAt
	}
	d.Block, d.WakeAt = in.block(d.WakeAt)
	return d
}

// ending is why a deleted pod does not end, or when to check again.
func (in *PodInput) ending() (*Block, time.Time) {
	late := in.DeletionTime.Add(in.Policy.TerminatingAfter)
	if in.Now.Before(late) {
		return nil, late
	}
	return &Block{v1alpha1.BlockTerminating, "its grace period is over, and it has not ended"}, time.Time{}
}

// dropLater removes those who want the pod in a later wave from Wants, and reports whether there
// are some. An eviction that they have requested already goes on, whatever has changed since.
func (in *PodInput) dropLater() bool {
	running := in.Eviction != nil && in.Eviction.State != v1alpha1.StateCanceled
	waits := func(w Want) bool { return w.Later && (!running || !slices.Contains(in.Joined, w.Requester)) }
	if !slices.ContainsFunc(in.Wants, waits) {
		return false
	}
	in.Wants = slices.DeleteFunc(slices.Clone(in.Wants), waits)
	return true
}

// stays is why a pod stays that is kept, or waits for its wave. It may have been deleted by
// others.
func (in *PodInput) stays() (*Block, time.Time) {
	if in.Deleting {
		return in.ending()
	}
	return in.Kept, time.Time{}
}

// leave returns the maintenances that joined but no longer want the eviction.
func (in *PodInput) leave() []string {
	if in.Eviction == nil || in.over() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(in.Joined), in.wants)
}

func (in *PodInput) wants(requester string) bool {
	return slices.ContainsFunc(in.Wants, func(w Want) bool { return w.Requester == requester })
}

// over reports whether the request needs no further changes.
func (in *PodInput) over() bool {
	return in.Eviction.State == v1alpha1.StateEvicted || in.Eviction.State == v1alpha1.StateDeleting || in.Eviction.Refused
}

// request decides about the condition EvacuationRequest. One of another owner stays as
// long as it requests the same; the message is that of any maintenance that wants the
// eviction.
func (in *PodInput) request() (Change, string) {
	switch c := in.Request; {
	case c == nil, !c.True:
		return ChangeTrue, in.Wants[0].Message
	case c.Ours && !slices.ContainsFunc(in.Wants, func(w Want) bool { return w.Message == c.Message }):
		return ChangeTrue, in.Wants[0].Message
	default:
		return ChangeNothing, ""
	}
}

// initiated decides about the condition EvacuationInitiated. It is only about our
// interceptors, and becomes False when they are done and the eviction is refused.
func (in *PodInput) initiated() Change {
	if in.Eviction == nil || in.Initiated != nil && !in.Initiated.Ours {
		return ChangeNothing
	}
	is := in.Initiated != nil && in.Initiated.True
	switch {
	case in.Eviction.Started && !is:
		return ChangeTrue
	case in.Eviction.State == v1alpha1.StateBlocked && is:
		return ChangeFalse
	default:
		return ChangeNothing
	}
}

// join returns the requesters that must join now, or when to check again.
func (in *PodInput) join() ([]string, time.Time) {
	if in.Eviction != nil && in.over() {
		return nil, time.Time{}
	}
	running := in.Eviction != nil && in.Eviction.State != v1alpha1.StateCanceled
	if !in.Intercepted && !running {
		if begins := in.begins(); in.Now.Before(begins) {
			return nil, begins
		}
	}
	var join []string
	for _, w := range in.Wants {
		canceled := in.Eviction != nil && in.Eviction.State == v1alpha1.StateCanceled
		if canceled || !slices.Contains(in.Joined, w.Requester) {
			join = append(join, w.Requester)
		}
	}
	return join, time.Time{}
}

// begins is when the eviction of a pod without interceptors is requested.
func (in *PodInput) begins() time.Time {
	switch asked := in.asked(); {
	case in.Initiated == nil || in.Initiated.Ours:
		return asked.Add(in.Policy.Wait)
	case in.Initiated.True:
		return in.ownerHeard().Add(in.Policy.OwnerDeadline)
	default:
		return in.Now
	}
}

// asked is when the pod's owner was asked to move it.
func (in *PodInput) asked() time.Time {
	switch {
	case in.Request != nil && in.Request.True:
		return in.Request.Since
	case !in.AskedInVain.IsZero():
		return in.AskedInVain
	}
	return in.Now
}

// ownerHeard is when the owner that has set EvacuationInitiated last reported. A report
// from before it was asked counts as its answer.
func (in *PodInput) ownerHeard() time.Time {
	heard := in.asked()
	for _, t := range []time.Time{in.Initiated.Since, in.Initiated.Probed} {
		if t.After(heard) && !t.After(in.Now) {
			heard = t
		}
	}
	return heard
}

// block is why the pod is stuck, and when to check again, at wake at the latest if that
// is set.
func (in *PodInput) block(wake time.Time) (*Block, time.Time) {
	er := in.Eviction
	switch {
	case er != nil && er.Refused:
		return &Block{v1alpha1.BlockRequestRefused, er.Message}, wake
	case er != nil && er.State == v1alpha1.StateDeleting:
		return &Block{v1alpha1.BlockRequestFailed, er.Message}, wake
	case in.Failure != "":
		return &Block{v1alpha1.BlockRequestFailed, in.Failure}, wake
	case er == nil, er.State == v1alpha1.StateCanceled:
		return in.ownerBlock(wake)
	case er.State == v1alpha1.StateBlocked && er.Never:
		return &Block{v1alpha1.BlockBudgetNeverAllows, er.Message}, wake
	case er.State == v1alpha1.StateBlocked:
		return &Block{v1alpha1.BlockEvictionRefused, er.Message}, wake
	case er.State != v1alpha1.StateIntercepting || er.LastHeard.IsZero():
		return nil, wake
	}
	silent := er.LastHeard.Add(cmp.Or(er.SilentAfter, in.Policy.SilentAfter))
	if !in.Now.Before(silent) {
		return &Block{v1alpha1.BlockInterceptorSilent, "interceptor " + er.Interceptor + " does not report"}, wake
	}
	return nil, earlier(silent, wake)
}

// ownerBlock is block for a pod whose eviction is not requested yet: its owner may have
// said that it moves the pod, but does nothing.
func (in *PodInput) ownerBlock(wake time.Time) (*Block, time.Time) {
	if in.Intercepted || in.Initiated == nil || in.Initiated.Ours || !in.Initiated.True {
		return nil, wake
	}
	heard := in.ownerHeard()
	silent := heard.Add(in.Policy.SilentAfter)
	if in.Now.Before(silent) {
		return nil, earlier(silent, wake)
	}
	return &Block{v1alpha1.BlockOwnerSilent, "its owner has set EvacuationInitiated, and is not heard of since " + heard.UTC().Format(time.RFC3339)}, wake
}

// earlier is the earlier of two times; the second may be zero for never.
func earlier(t, orNever time.Time) time.Time {
	if orNever.IsZero() || t.Before(orNever) {
		return t
	}
	return orNever
}

// removeOurs removes a condition that is there and ours.
func removeOurs(c *Condition) Change {
	if c == nil || !c.Ours {
		return ChangeNothing
	}
	return ChangeRemove
}
