package interceptor

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// sdkTurn is what a request says about an interceptor's turn.
type sdkTurn int

const (
	// sdkNoTurn: it has not come, or nothing is left to do: the interceptor
	// completed, or the pod has ended in the turn of another one.
	sdkNoTurn sdkTurn = iota
	// sdkActive: it is this interceptor's turn.
	sdkActive
	// sdkCalledOff: the request was canceled or deleted in or after its turn.
	sdkCalledOff
	// sdkPodGone: the pod has ended in its turn, before it completed.
	sdkPodGone
	// sdkPassedOver: the interceptor was silent for too long, others follow.
	sdkPassedOver
)

// sdkTurnOf reads an interceptor's turn from a request (statement 109). An empty
// list of requesters is final (ruling R3), so nobody waits for the controller to
// say so.
func sdkTurnOf(er *v1alpha1.EvictionRequest, name string) sdkTurn {
	pod := er.Spec.Target.Pod
	isActive := slices.Contains(er.Status.ActiveInterceptors, name)
	switch {
	case pod == nil || string(pod.UID) != er.Name,
		!isActive && !slices.Contains(er.Status.ProcessedInterceptors, name),
		!sdkItemOf(er, name).CompletedAt.IsZero():
		return sdkNoTurn
	case meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted):
		if processed := er.Status.ProcessedInterceptors; isActive || processed[len(processed)-1] == name {
			return sdkPodGone
		}
		return sdkNoTurn // It was passed over, and others had the turn.
	case er.DeletionTimestamp != nil, len(er.Spec.Requesters) == 0,
		meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled):
		return sdkCalledOff
	case isActive:
		return sdkActive
	default:
		return sdkPassedOver
	}
}

// sdkItem is an interceptor's report, in whole seconds as the API keeps it.
type sdkItem struct {
	StartedAt, HeartbeatAt, ExpectedFinishAt, CompletedAt time.Time
	Message                                               string
}

// sdkItemOf reads an interceptor's own report.
func sdkItemOf(er *v1alpha1.EvictionRequest, name string) sdkItem {
	report := v1alpha1.ReportOf(er, name)
	item := sdkItem{Message: report.Message}
	if t := report.StartTime; t != nil {
		item.StartedAt = t.Time
	}
	if t := report.HeartbeatTime; t != nil {
		item.HeartbeatAt = t.Time
	}
	if t := report.ExpectedFinishTime; t != nil {
		item.ExpectedFinishAt = t.Time
	}
	if t := report.CompletionTime; t != nil {
		item.CompletedAt = t.Time
	}
	return item
}

// sdkInput is all that a step may look at.
type sdkInput struct {
	Turn sdkTurn
	Item sdkItem
	// Deleted: the request is no more.
	Deleted bool
	// Settled: nothing is left to do for this request, though it may not show it.
	Settled bool
	// NoReturn: the interceptor is past the point of no return.
	NoReturn bool
	// CanCancel: the interceptor is a Canceler.
	CanCancel bool
	// CanGone: the interceptor is a Goner.
	CanGone bool
	// Interval is the time between two heartbeats.
	Interval time.Duration
	// Answer is what Evacuate has just said; nil before it was asked.
	Answer *Progress
}

// sdkCall is what is to be called.
type sdkCall int

const (
	sdkCallNothing sdkCall = iota
	sdkCallEvacuate
	sdkCallCancel
	sdkCallGone
)

// sdkDecision is what a step wants.
type sdkDecision struct {
	// Call is what to call; after it, the step is taken again with its answer.
	Call sdkCall
	// Report is what to write, nil for nothing.
	Report *sdkItem
	// Settled: nothing is left to do once the report is written.
	Settled bool
	// WakeAt is when to call again even if nothing happens; zero for never.
	WakeAt time.Time
}

// sdkStep decides whom to call, and what to make of the answer.
func sdkStep(in sdkInput, now time.Time) sdkDecision {
	switch {
	case in.Answer == nil:
		return sdkDecision{Call: sdkWhatToCall(in)}
	case in.Turn != sdkActive && in.Answer.Done:
		return sdkDecision{Settled: true}
	case in.Turn != sdkActive:
		// Past the point of no return, with nobody left to report to.
		return sdkDecision{WakeAt: sdkEarliest(sdkCheckAt(in.Answer, now), now.Add(in.Interval))}
	case in.Answer.Done:
		// The heartbeat stays as it is: a completion is no heartbeat, so the 60 s do
		// not hold it up. Who never began has declined (statement 110).
		return sdkDecision{Settled: true, Report: &sdkItem{
			StartedAt: in.Item.StartedAt, HeartbeatAt: in.Item.HeartbeatAt,
			CompletedAt: now.Truncate(time.Second), Message: sdkMessage(in.Answer.Message),
		}}
	default:
		return sdkBeat(in, now)
	}
}

// sdkWhatToCall is the first half of a step.
func sdkWhatToCall(in sdkInput) sdkCall {
	switch {
	case in.Settled || in.Turn == sdkNoTurn:
		return sdkCallNothing
	case in.Turn == sdkPodGone && in.CanGone:
		return sdkCallGone
	case in.Turn == sdkPodGone:
		return sdkCallNothing
	case in.Turn == sdkActive:
		return sdkCallEvacuate
	case in.NoReturn && in.Turn == sdkCalledOff:
		return sdkCallEvacuate // There is only one way, and nobody else goes it.
	case in.Turn == sdkCalledOff && in.Deleted && !in.CanCancel && in.CanGone:
		return sdkCallGone
	case in.NoReturn || !in.CanCancel:
		return sdkCallNothing
	default:
		return sdkCallCancel
	}
}

// sdkBeat reports that work goes on: when the interval is over, and when there is
// news, but never within a minute of the last time (statements 42 and 43). Between
// two heartbeats nothing is written.
func sdkBeat(in sdkInput, now time.Time) sdkDecision {
	item := sdkItem{
		StartedAt:        in.Item.StartedAt,
		HeartbeatAt:      now.Truncate(time.Second),
		ExpectedFinishAt: sdkFinishAt(in.Answer.ExpectedFinishTime, now),
		Message:          sdkMessage(in.Answer.Message),
	}
	d := sdkDecision{}
	news := item.Message != in.Item.Message || sdkFinishMoved(in.Item.ExpectedFinishAt, item.ExpectedFinishAt, now)
	due := in.Item.HeartbeatAt.Add(in.Interval)
	if news {
		due = in.Item.HeartbeatAt.Add(MinHeartbeatInterval)
	}
	switch {
	case in.Item.HeartbeatAt.IsZero():
		item.StartedAt = item.HeartbeatAt // Set together (ruling R2).
		d.Report = &item
	case !now.Before(due):
		d.Report = &item
	}
	if d.Report != nil {
		due = item.HeartbeatAt.Add(in.Interval)
	}
	d.WakeAt = sdkEarliest(due, sdkCheckAt(in.Answer, now))
	return d
}

// sdkCheckAt is when the interceptor wants to look again, zero for any time.
func sdkCheckAt(answer *Progress, now time.Time) time.Time {
	if answer.CheckAfter <= 0 {
		return time.Time{}
	}
	return now.Add(answer.CheckAfter)
}

// sdkEarliest is the earlier of two times, of which zero is none.
func sdkEarliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// sdkFinishAt is an expected finish time as it may be reported: in whole seconds,
// rounded up, and not in the past (statement 48).
func sdkFinishAt(expected, now time.Time) time.Time {
	if !expected.After(now) {
		return time.Time{}
	}
	return expected.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}

// sdkFinishMoved reports whether an expected finish time is news. Estimates
// tremble; one that moves by less than a minute waits for the next heartbeat.
func sdkFinishMoved(before, after, now time.Time) bool {
	switch {
	case after.IsZero():
		return before.After(now)
	case before.IsZero():
		return true
	default:
		return !before.After(now) || after.Sub(before).Abs() >= MinHeartbeatInterval
	}
}

// sdkMessage makes a message one that the API accepts: UTF-8, cut between two
// characters (ruling R6).
func sdkMessage(message string) string {
	message = strings.ToValidUTF8(message, "\uFFFD")
	count := 0
	for i := range message {
		if count == v1alpha1.MaxMessageLength {
			return message[:i]
		}
		count++
	}
	return message
}
