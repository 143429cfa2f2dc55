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
		"one that was canceled": {
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
	drawn := func(now time.Time) barModel {
		s := state.NewSnapshot(now, er.Obj())
		lanes := []lane{laneOf(s, s.ProcessByPod[s.Requests[0].Spec.Target.Pod.UID])}
		return windowOf(lanes, 0, now).row(lanes[0]).Bars[0]
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
