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
	rank  int
}

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

// lanesOf are the time lines of a node's pods: those in trouble first, then those that go
// on, then those that have left, the latest first.
func lanesOf(s *state.Snapshot, node string) []lane {
	var all []lane
	for _, p := range s.ProcessesByNode[node] {
		all = append(all, laneOf(s, p))
	}
	slices.SortStableFunc(all, func(a, b lane) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), b.began.Compare(a.began))
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
		l.State, l.Tone, l.rank = "blocked", toneBad, 0
	case v1alpha1.StateEvicted:
		l.State, l.Tone, l.rank = "gone", toneGood, 2
	case v1alpha1.StateCanceled:
		l.State, l.Tone, l.rank = "canceled", toneFaint, 2
	case v1alpha1.StateEvicting:
		l.State, l.Tone, l.rank = "evicting", toneBusy, 1
	case v1alpha1.StatePending:
		l.State, l.Tone, l.rank = "requested", toneWait, 1
	default:
		l.State, l.Tone, l.rank = text.Clean(u.Interceptor), toneBusy, 1
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

// Geometry of the chart, in its own units.
const (
	chartWidth = 1000
	labelWidth = 220
	laneHeight = 28
	axisHeight = 24
	barHeight  = 18
	// maxAhead is how much of the chart what is expected may take: an interceptor may expect
	// to be done in a year.
	maxAhead = 0.4
	// labelCells is how many characters of a name fit beside the lanes.
	labelCells = 30
)

// chart is the time lines as a drawing.
type chart struct {
	Width, Height, Axis int
	Now                 int
	Marks               []mark
	Lanes               []drawnLane
}

// mark is a time on the axis.
type mark struct {
	X    int
	Text string
}

type drawnLane struct {
	Y, TextY int
	Href     string
	Label    string
	Full     string
	Turns    []drawnTurn
}

type drawnTurn struct {
	X, Y, Width, Height int
	Class, Title        string
	Hatched             bool
	// Expected is the part that is still to come, from X+Width on.
	Expected      int
	ExpectedTitle string
	// Deadline is where it has to be done, 0 if there is none ahead.
	Deadline      int
	DeadlineTitle string
	Ticks         []int
	Bottom        int
}

// draw lays the lanes out.
func draw(lanes []lane, now time.Time) chart {
	from, to := now, now
	for _, l := range lanes {
		if l.began.Before(from) {
			from = l.began
		}
		for _, t := range l.Turns {
			for _, ahead := range []time.Time{t.Expected, t.Deadline} {
				if ahead.After(to) {
					to = ahead
				}
			}
		}
	}
	if past := max(now.Sub(from), time.Minute); to.Sub(now) > time.Duration(float64(past)*maxAhead/(1-maxAhead)) {
		to = now.Add(time.Duration(float64(past) * maxAhead / (1 - maxAhead)))
	}
	span := max(to.Sub(from), time.Second)
	x := func(t time.Time) int {
		at := min(max(float64(t.Sub(from))/float64(span), 0), 1)
		return labelWidth + int(at*(chartWidth-labelWidth-1))
	}
	c := chart{Width: chartWidth, Height: axisHeight + len(lanes)*laneHeight, Axis: axisHeight, Now: x(now)}
	const marks = 6
	for i := range marks {
		at := from.Add(span * time.Duration(i) / marks)
		layout := time.TimeOnly
		if span > 24*time.Hour {
			layout = "2 Jan 15:04"
		}
		c.Marks = append(c.Marks, mark{X: x(at), Text: at.In(now.Location()).Format(layout)})
	}
	for i, l := range lanes {
		top := axisHeight + i*laneHeight + (laneHeight-barHeight)/2
		d := drawnLane{Y: top, TextY: top + barHeight*3/4, Href: podHref(l.Namespace, l.Pod), Full: text.Clean(l.Namespace + "/" + l.Pod)}
		d.Label = text.Cut(text.Clean(l.Pod), labelCells)
		for _, t := range l.Turns {
			drawn := drawnTurn{X: x(t.From), Y: top, Height: barHeight, Class: t.Class, Title: t.title(now), Hatched: t.Class == classBudget, Bottom: top + barHeight}
			drawn.Width = max(x(t.To)-drawn.X, 2)
			if t.Open && t.Expected.After(now) {
				drawn.Expected = max(x(t.Expected)-drawn.X-drawn.Width, 0)
				drawn.ExpectedTitle = t.Interceptor + " expects to be done in " + duration.HumanDuration(t.Expected.Sub(now))
			}
			if t.Open && t.Deadline.After(now) && !t.Deadline.After(to) {
				drawn.Deadline = x(t.Deadline)
				drawn.DeadlineTitle = t.Interceptor + " is cut off in " + duration.HumanDuration(t.Deadline.Sub(now))
			}
			for _, tick := range t.Ticks {
				if !tick.Before(t.From) && !tick.After(now) {
					drawn.Ticks = append(drawn.Ticks, x(tick))
				}
			}
			d.Turns = append(d.Turns, drawn)
		}
		c.Lanes = append(c.Lanes, d)
	}
	return c
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
