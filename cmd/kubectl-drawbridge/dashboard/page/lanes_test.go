package page

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// seen is what a turn looks like.
type seen struct {
	Name, Class string
	From, To    string
	Open        bool
	Expected    string
	Ticks       int
}

func seenOf(l lane) []seen {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Format(time.TimeOnly)
	}
	var all []seen
	for _, t := range l.Turns {
		all = append(all, seen{t.Interceptor, t.Class, at(t.From), at(t.To), t.Open, at(t.Expected), len(t.Ticks)})
	}
	return all
}

func TestLanes(t *testing.T) {
	request := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "db-0", "db-0").UID("request").Created(before(10 * time.Minute)).NodeName("node-1").Observed().Requesters("r.example.com")
	}
	cases := map[string]struct {
		request *builder.EvictionRequestWrapper
		beats   []time.Time
		state   string
		want    []seen
	}{
		"before anybody has a turn": {request(), nil, "requested", nil},
		"one after the other": {
			request().Interceptors(first, second).Processed(first).
				Started(first, before(9*time.Minute)).Completed(first, before(6*time.Minute)).Active(second, before(5*time.Minute)), nil, second,
			[]seen{{first, "turn", "11:51:00", "11:54:00", false, "", 1}, {second, "turn", "11:55:00", "12:00:00", true, "", 0}},
		},
		"what is expected, and all heartbeats that were seen": {
			request().Interceptors(first).Active(first, before(9*time.Minute)).Heartbeat(first, before(time.Minute)).
				Report(first, func(s *v1alpha1.InterceptorStatus) {
					s.ExpectedFinishTime = &builder.EvictionRequest("", "", "").Created(noon.Add(time.Minute)).Obj().CreationTimestamp
				}),
			[]time.Time{before(3 * time.Minute), before(2 * time.Minute), before(time.Minute)}, first,
			[]seen{{first, "turn", "11:51:00", "12:00:00", true, "12:01:00", 3}},
		},
		"a budget that lets wait": {
			request().Interceptors(v1alpha1.BudgetInterceptor).Active(v1alpha1.BudgetInterceptor, before(9*time.Minute)), nil, v1alpha1.BudgetInterceptor,
			[]seen{{v1alpha1.BudgetInterceptor, "turn turn-budget", "11:51:00", "12:00:00", true, "", 0}},
		},
		"a PodDisruptionBudget that refuses": {
			request().Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, before(9*time.Minute)).Refused(2, "quorum"), nil, "blocked",
			[]seen{{v1alpha1.ImperativeEvictionInterceptor, "turn turn-blocked", "11:51:00", "12:00:00", true, "", 0}},
		},
		"a pod that has gone ends its last turn": {
			request().Interceptors(first).Processed(first, v1alpha1.ImperativeEvictionInterceptor).
				Started(first, before(9*time.Minute)).Completed(first, before(6*time.Minute)).Started(v1alpha1.ImperativeEvictionInterceptor, before(6*time.Minute)).
				Evicted("PodDeleted", before(4*time.Minute)), nil, "gone",
			[]seen{{first, "turn", "11:51:00", "11:54:00", false, "", 1}, {v1alpha1.ImperativeEvictionInterceptor, "turn turn-last", "11:54:00", "11:56:00", false, "", 1}},
		},
		"one that was called off": {
			request().Interceptors(first).Processed(first).Canceled("NoRequesters", before(4*time.Minute)), nil, "canceled",
			[]seen{{first, "turn", "11:50:00", "11:56:00", false, "", 0}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := state.NewSnapshot(noon, tc.request.Obj())
			s.Heartbeats[state.HeartbeatKey{Request: "request", Interceptor: first}] = tc.beats
			l := laneOf(s, s.ProcessByPod[s.Requests[0].Spec.Target.Pod.UID])
			if l.State != tc.state {
				t.Errorf("want the state %q, got %q", tc.state, l.State)
			}
			if diff := cmp.Diff(tc.want, seenOf(l)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// A deadline is ahead, and nothing is told of it when it is over.
func TestADeadlineIsDrawnAndTold(t *testing.T) {
	er := builder.EvictionRequest("shop", "db-0", "db-0").UID("request").Created(before(10*time.Minute)).Interceptors(first).
		Active(first, before(9*time.Minute)).Deadline("spot.example.com", noon.Add(25*time.Second))
	drawn := func(now time.Time) drawnTurn {
		s := state.NewSnapshot(now, er.Obj())
		return draw([]lane{laneOf(s, s.ProcessByPod[s.Requests[0].Spec.Target.Pod.UID])}, now).Lanes[0].Turns[0]
	}
	ahead := drawn(noon)
	if ahead.Deadline <= ahead.X+ahead.Width || ahead.DeadlineTitle != first+" is cut off in 25s" || !strings.HasSuffix(ahead.Title, ": 25s left") {
		t.Errorf("25 s ahead it is %+v", ahead)
	}
	if come := drawn(noon.Add(25 * time.Second)); come.Deadline != 0 || !strings.HasSuffix(come.Title, ": no time left") {
		t.Errorf("when it has come it is %+v", come)
	}
	er.Processed(first).Active(v1alpha1.ImperativeEvictionInterceptor, noon)
	if s := state.NewSnapshot(noon, er.Obj()); laneOf(s, s.ProcessByPod[s.Requests[0].Spec.Target.Pod.UID]).Message != "" {
		t.Errorf("the eviction is told %q", laneOf(s, s.ProcessByPod[s.Requests[0].Spec.Target.Pod.UID]).Message)
	}
}

// Whatever the times are, the drawing stays within its bounds, and the past can be seen.
func TestTheDrawingStaysInItsBounds(t *testing.T) {
	cases := map[string][]lane{
		"nothing":                      nil,
		"a turn of no length":          {{began: noon, Turns: []turn{{From: noon, To: noon}}}},
		"expected in a year":           {{began: before(time.Minute), Turns: []turn{{From: before(time.Minute), To: noon, Open: true, Expected: noon.AddDate(1, 0, 0)}}}},
		"began a year ago":             {{began: noon.AddDate(-1, 0, 0), Turns: []turn{{From: noon.AddDate(-1, 0, 0), To: noon, Open: true}}}},
		"cut off in a year":            {{began: before(time.Minute), Turns: []turn{{From: before(time.Minute), To: noon, Open: true, Deadline: noon.AddDate(1, 0, 0)}}}},
		"a clock that is ahead":        {{began: noon.Add(time.Hour), Turns: []turn{{From: noon.Add(time.Hour), To: noon.Add(2 * time.Hour), Ticks: []time.Time{noon.Add(time.Hour)}}}}},
		"an end before the beginning":  {{began: noon, Turns: []turn{{From: noon, To: before(time.Hour)}}}},
		"a turn before the request":    {{began: before(time.Minute), Turns: []turn{{From: before(time.Hour), To: before(time.Minute)}}}},
		"heartbeats of another moment": {{began: before(time.Minute), Turns: []turn{{From: before(time.Minute), To: noon, Open: true, Ticks: []time.Time{before(time.Hour), noon.Add(time.Hour), before(time.Second)}}}}},
	}
	for name, lanes := range cases {
		t.Run(name, func(t *testing.T) {
			c := draw(lanes, noon)
			inside := func(what string, x int) {
				t.Helper()
				if x < labelWidth || x > chartWidth+2 {
					t.Errorf("%s is at %d, outside of %d to %d", what, x, labelWidth, chartWidth)
				}
			}
			inside("now", c.Now)
			for _, l := range c.Lanes {
				for _, turn := range l.Turns {
					inside("a turn", turn.X)
					inside("its end", turn.X+turn.Width+turn.Expected)
					if turn.Width < 1 || turn.Expected < 0 || turn.Y+turn.Height > c.Height {
						t.Errorf("a turn is %+v", turn)
					}
					for _, x := range turn.Ticks {
						inside("a heartbeat", x)
					}
				}
			}
		})
	}
	ahead := draw(cases["expected in a year"], noon)
	if turn := ahead.Lanes[0].Turns[0]; turn.Width < (chartWidth-labelWidth)/2 {
		t.Errorf("what is expected leaves %d for what was", turn.Width)
	}
}
