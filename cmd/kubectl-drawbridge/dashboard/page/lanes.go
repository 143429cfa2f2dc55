package page

import (
	"cmp"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

// lane is the time line of one pod.
type lane struct {
	ID, Namespace, Pod string
	State, Tone        string
	Message            string
	Turns              []turn
	// Next are the names of those that are still to come, where some are native.
	Next  []string
	began time.Time
	rank  laneRank
}

// laneRank is the group of a lane: the groups are drawn in this order.
type laneRank int

const (
	rankBlocked laneRank = iota
	rankWorking
	rankFinished
)

// turn is what one interceptor did.
type turn struct {
	Interceptor string
	// Class of the stylesheet.
	Class string
	From  time.Time
	// To is the end; Open says that it goes on until now.
	To   time.Time
	Open bool
	// Expected is when it expects to be done; zero if it does not say, or has ended.
	Expected time.Time
	// Deadline is when it has to be done; zero if it need not, or has ended.
	Deadline time.Time
	Ticks    []time.Time
	Message  string
	// Skipped is who skipped it.
	Skipped string
}

// Classes of turns.
const (
	classTurn    = "turn"
	classBudget  = "turn turn-budget"
	classLast    = "turn turn-last"
	classBlocked = "turn turn-blocked"
)

// lanesOf are the time lines of a node's pods: those that are blocked first, then those that go
// on, the oldest first, then those that have left, the latest first.
func lanesOf(s *state.Snapshot, node string) []lane {
	var all []lane
	for _, p := range s.ProcessesByNode[node] {
		all = append(all, laneOf(s, p))
	}
	slices.SortStableFunc(all, func(a, b lane) int {
		age := a.began.Compare(b.began)
		if a.rank == rankFinished {
			age = -age
		}
		return cmp.Or(cmp.Compare(a.rank, b.rank), age)
	})
	return all
}

func laneOf(s *state.Snapshot, p turns.Process) lane {
	u := p.Observe()
	pod, _ := p.Pod()
	l := lane{Namespace: pod.Namespace, Pod: pod.Name, Message: text.Hurried(text.Clean(u.Message), u.Deadline, s.Now)}
	if er := p.Request; er != nil {
		l.ID, l.began = idOf("lane", string(er.UID), er.Namespace, er.Name), er.CreationTimestamp.Time
	} else {
		l.ID, l.began = idOf("lane", string(p.Eviction.UID), p.Eviction.Namespace, p.Eviction.Name), p.Eviction.CreationTimestamp.Time
	}
	switch u.State {
	case v1alpha1.StateBlocked:
		l.State, l.Tone, l.rank = "blocked", toneBad, rankBlocked
	case v1alpha1.StateEvicted:
		l.State, l.Tone, l.rank = "gone", toneGood, rankFinished
	case v1alpha1.StateCanceled:
		l.State, l.Tone, l.rank = "canceled", toneFaint, rankFinished
	case v1alpha1.StateEvicting:
		l.State, l.Tone, l.rank = "evicting", toneBusy, rankWorking
	case v1alpha1.StatePending:
		l.State, l.Tone, l.rank = "requested", toneWait, rankWorking
	default:
		l.State, l.Tone, l.rank = text.Clean(u.Interceptor), toneBusy, rankWorking
	}
	l.Turns, l.Next = nativeTurns(s, p)
	if p.Request != nil {
		l.Turns = turnsOf(s, p.Request, u.Deadline, u.State == v1alpha1.StateBlocked, l.Turns)
	}
	return l
}

// nativeTurns are those of native responders that have begun, and the names of all turns that are
// still to come, if some are native. What stands for our interceptors is only one of them where
// there is no request, and so is the evictor.
func nativeTurns(s *state.Snapshot, p turns.Process) (begun []turn, next []string) {
	if p.Eviction == nil {
		return nil, nil
	}
	for _, t := range p.Turns(nil) {
		switch {
		case t.State == turns.Waits:
			next = append(next, text.Clean(t.Name))
			continue
		case !t.Native || t.Since == nil:
			continue
		}
		drawn := turn{Interceptor: text.Clean(t.Name), Class: classTurn, From: *t.Since, To: *t.Since, Message: text.Clean(t.Message)}
		if t.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction {
			drawn.Class = classLast
		}
		switch {
		case t.Completed != nil:
			drawn.To = *t.Completed
		case t.State == turns.Active:
			drawn.To, drawn.Open, drawn.Expected = s.Now, true, ptr.Deref(t.Expected, time.Time{})
		case t.Heard != nil:
			drawn.To = *t.Heard // It was passed over, and nobody noted when.
		}
		if drawn.To.Before(drawn.From) {
			drawn.To = drawn.From
		}
		if t.Heard != nil {
			drawn.Ticks = []time.Time{*t.Heard}
		}
		begun = append(begun, drawn)
	}
	return begun, next
}

// turnsOf are those of a request, with those of native responders in place of the interceptor that
// stands for them.
func turnsOf(s *state.Snapshot, er *v1alpha1.EvictionRequest, deadline time.Time, blocked bool, native []turn) []turn {
	all := native // They come first, unless the plan says where.
	planned := slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name == v1alpha1.NativeInterceptor })
	if planned {
		all = nil
	}
	end := endOf(er)
	last := er.CreationTimestamp.Time // Where the turn before has ended.
	for _, target := range er.Status.TargetInterceptors {
		if target.Name == v1alpha1.NativeInterceptor && len(native) > 0 {
			all, last = append(all, native...), native[len(native)-1].To
			continue
		}
		report := v1alpha1.ReportOf(er, target.Name)
		active := slices.Contains(er.Status.ActiveInterceptors, target.Name)
		if !active && !slices.Contains(er.Status.ProcessedInterceptors, target.Name) {
			continue
		}
		t := turn{Interceptor: text.Clean(target.Name), Class: classTurn, From: last, Message: text.Clean(report.Message), Skipped: text.Clean(report.SkippedBy)}
		switch {
		case active && er.Status.ActivationTime != nil:
			t.From = er.Status.ActivationTime.Time
		case report.StartTime != nil && report.StartTime.After(last):
			t.From = report.StartTime.Time
		}
		switch {
		case report.CompletionTime != nil:
			t.To = report.CompletionTime.Time
		case active && end.IsZero():
			t.To, t.Open = s.Now, true
			if report.ExpectedFinishTime != nil {
				t.Expected = report.ExpectedFinishTime.Time
			}
			t.Deadline, t.Message = deadline, text.Hurried(t.Message, deadline, s.Now)
		case !end.IsZero():
			t.To = end
		default:
			t.To = t.From // It was passed over, and nobody noted when.
		}
		switch target.Name {
		case v1alpha1.BudgetInterceptor:
			t.Class = classBudget
		case v1alpha1.ImperativeEvictionInterceptor:
			t.Class = classLast
			if blocked {
				t.Class = classBlocked
			}
		}
		t.Ticks = s.Heartbeats[state.HeartbeatKey{Request: er.UID, Interceptor: target.Name}]
		if len(t.Ticks) == 0 && report.HeartbeatTime != nil {
			t.Ticks = []time.Time{report.HeartbeatTime.Time}
		}
		if t.To.Before(t.From) {
			t.To = t.From
		}
		last = t.To
		all = append(all, t)
	}
	return all
}

// endOf is when a request ended; zero if it has not.
func endOf(er *v1alpha1.EvictionRequest) time.Time {
	for _, kind := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		if c := meta.FindStatusCondition(er.Status.Conditions, kind); c != nil && c.Status == "True" {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// title says what a turn was, for who points at it and for the table.
func (t turn) title(now time.Time) string {
	said := t.Interceptor + ", " + t.From.In(now.Location()).Format(time.TimeOnly)
	if t.Open {
		said += " until now"
	} else {
		said += " to " + t.To.In(now.Location()).Format(time.TimeOnly)
	}
	said += " (" + duration.HumanDuration(t.To.Sub(t.From)) + ")"
	if t.Skipped != "" {
		said += ", skipped by " + t.Skipped
	}
	if t.Message != "" {
		said += ": " + t.Message
	}
	return said
}
