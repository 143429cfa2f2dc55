package interceptor

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// turn is the state of an interceptor's turn.
type turn int

const (
	// noTurn: it has not come yet, or nothing is left to do: the interceptor completed,
	// or the pod ended in another's turn.
	noTurn turn = iota
	// active: it is this interceptor's turn.
	active
	// calledOff: the request was canceled or deleted during or after its turn.
	calledOff
	// podGone: the pod ended during its turn, before it completed.
	podGone
	// passedOver: the interceptor missed the heartbeat deadline, and others follow.
	passedOver
)

// turnOf reads an interceptor's turn from a request (statement 109). An empty list of
// requesters is final (ruling R3), so there is no need to wait for the controller.
func turnOf(er *v1alpha1.EvictionRequest, name string) turn {
	pod := er.Spec.Target.Pod
	isActive := slices.Contains(er.Status.ActiveInterceptors, name)
	switch {
	case pod == nil || string(pod.UID) != er.Name,
		!isActive && !slices.Contains(er.Status.ProcessedInterceptors, name),
		!itemOf(er, name).CompletedAt.IsZero():
		return noTurn
	case meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted):
		if processed := er.Status.ProcessedInterceptors; isActive || processed[len(processed)-1] == name {
			return podGone
		}
		return noTurn // It was passed over, and others had the turn.
	case er.DeletionTimestamp != nil, v1alpha1.IsUnwanted(er),
		meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled):
		return calledOff
	case isActive:
		return active
	default:
		return passedOver
	}
}

// item is an interceptor's report, in whole seconds as the API keeps it.
type item struct {
	StartedAt, HeartbeatAt, ExpectedFinishAt, CompletedAt time.Time
	Message                                               string
	// Forbidden: the request may not be canceled any more.
	Forbidden bool
}

// itemOf reads an interceptor's own report.
func itemOf(er *v1alpha1.EvictionRequest, name string) item {
	report := v1alpha1.ReportOf(er, name)
	item := item{Message: report.Message, Forbidden: report.Cancellation == v1alpha1.CancellationForbidden}
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

// input is everything that step depends on.
type input struct {
	Turn turn
	Item item
	// Deleted: the request is gone.
	Deleted bool
	// Settled: nothing is left to do for this request, even if it does not show it.
	Settled bool
	// NoReturn: the interceptor is past the point of no return.
	NoReturn bool
	// Revocable: the request can always be canceled, so that cannot be forbidden.
	Revocable bool
	// Start is the startTime, if the API's controller sets it; zero if the first report has
	// it. No time of a report is before it.
	Start time.Time
	// CanCancel: the interceptor is a Canceler.
	CanCancel bool
	// CanGone: the interceptor is a Goner.
	CanGone bool
	// Interval is the time between two heartbeats.
	Interval time.Duration
	// Answer is the result of Evacuate; nil before the call.
	Answer *Progress
}

// call is the method to call.
type call int

const (
	callNothing call = iota
	callEvacuate
	callCancel
	callGone
)

// decision is the result of step.
type decision struct {
	// Call is the method to call; then step runs again with its answer.
	Call call
	// Report is what to write, nil for nothing.
	Report *item
	// Settled: nothing is left to do once the report is written.
	Settled bool
	// WakeAt is when to call again even if nothing happens; zero for never.
	WakeAt time.Time
}

// step decides what to call, and what to do with the answer.
func step(in input, now time.Time) decision {
	switch {
	case in.Answer == nil:
		return decision{Call: whatToCall(in)}
	case in.Turn != active && in.Answer.Done:
		return decision{Settled: true}
	case in.Turn != active:
		// Past the point of no return, with no turn to report in.
		return decision{WakeAt: earliest(checkAt(in.Answer, now), now.Add(in.Interval))}
	case in.Answer.Done:
		// The heartbeat does not change: a completion is no heartbeat, so the 60 s do
		// not delay it. An interceptor that never began has declined (statement 110).
		return decision{Settled: true, Report: &item{
			StartedAt: in.Item.StartedAt, HeartbeatAt: in.Item.HeartbeatAt,
			CompletedAt: in.moment(now), Message: cutMessage(in.Answer.Message), Forbidden: in.forbids(),
		}}
	default:
		return beat(in, now)
	}
}

// whatToCall is the first half of a step.
func whatToCall(in input) call {
	switch {
	case in.Settled || in.Turn == noTurn:
		return callNothing
	case in.Turn == podGone && in.CanGone:
		return callGone
	case in.Turn == podGone:
		return callNothing
	case in.Turn == active:
		return callEvacuate
	case in.NoReturn && in.Turn == calledOff:
		return callEvacuate // There is no way back, and no other interceptor is active.
	case in.Turn == calledOff && in.Deleted && !in.CanCancel && in.CanGone:
		return callGone
	case in.NoReturn || !in.CanCancel:
		return callNothing
	default:
		return callCancel
	}
}

// beat reports that work continues: when the interval is over, and when there is news,
// but never within a minute of the last heartbeat (statements 42 and 43). Nothing is
// written between two heartbeats.
func beat(in input, now time.Time) decision {
	item := item{
		StartedAt:        in.Item.StartedAt,
		HeartbeatAt:      in.moment(now),
		ExpectedFinishAt: finishAt(in.Answer.ExpectedFinishTime, latest(now, in.Start)),
		Message:          cutMessage(in.Answer.Message),
		Forbidden:        in.forbids(),
	}
	d := decision{}
	news := item.Message != in.Item.Message || finishMoved(in.Item.ExpectedFinishAt, item.ExpectedFinishAt, now)
	due := in.Item.HeartbeatAt.Add(in.Interval)
	if news {
		due = in.Item.HeartbeatAt.Add(MinHeartbeatInterval)
	}
	switch {
	case in.Item.HeartbeatAt.IsZero():
		item.StartedAt = in.Start
		if in.Start.IsZero() {
			item.StartedAt = item.HeartbeatAt // Set together (ruling R2).
		}
		d.Report = &item
	case !now.Before(due):
		d.Report = &item
	case item.Forbidden && !in.Item.Forbidden:
		// This cannot wait for the next heartbeat: until it is reported, the request can be
		// canceled.
		forbidden := in.Item
		forbidden.Forbidden = true
		d.Report = &forbidden
		due = in.Item.HeartbeatAt.Add(max(in.Interval, MinHeartbeatInterval))
	}
	if d.Report == &item {
		due = item.HeartbeatAt.Add(in.Interval)
	}
	d.WakeAt = earliest(due, checkAt(in.Answer, now))
	return d
}

// moment is now as reports have it. The clock of the controller that set the startTime may
// be ahead.
func (in input) moment(now time.Time) time.Time {
	return latest(now.Truncate(time.Second), in.Start)
}

// latest is the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// forbids reports whether the request may not be canceled any more.
func (in input) forbids() bool {
	return in.Item.Forbidden || !in.Revocable && (in.NoReturn || in.Answer.PointOfNoReturn)
}

// checkAt is when the interceptor wants to be called again, zero for any time.
func checkAt(answer *Progress, now time.Time) time.Time {
	if answer.CheckAfter <= 0 {
		return time.Time{}
	}
	return now.Add(answer.CheckAfter)
}

// earliest is the earlier of two times, of which zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// maxExpected is how far ahead an expected finish time may be. The native API refuses ten
// years (kubernetes: pkg/apis/lifecycle/validation).
const maxExpected = 9 * 365 * 24 * time.Hour

// finishAt is an expected finish time in the form that may be reported: in whole
// seconds, rounded up, and not in the past (statement 48). One that nobody will live to see
// is none.
func finishAt(expected, now time.Time) time.Time {
	if !expected.After(now) || expected.Sub(now) > maxExpected {
		return time.Time{}
	}
	return expected.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}

// finishMoved reports whether an expected finish time is news. Estimates jitter; one
// that moves by less than a minute waits for the next heartbeat.
func finishMoved(before, after, now time.Time) bool {
	switch {
	case after.IsZero():
		return before.After(now)
	case before.IsZero():
		return true
	default:
		return !before.After(now) || after.Sub(before).Abs() >= MinHeartbeatInterval
	}
}

// cutMessage makes a message acceptable to the API: UTF-8, cut between two characters
// (ruling R6).
func cutMessage(message string) string {
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
