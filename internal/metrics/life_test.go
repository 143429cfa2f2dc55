package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// at is a request that entered its present stage so many seconds after 1970.
func at(name, active string, since int64) *v1alpha1.EvictionRequest {
	er := request(active)
	er.Name = name
	then := metav1.Unix(since, 0)
	if active == "" {
		er.CreationTimestamp = then
	} else {
		er.Status.ActivationTime = &then
	}
	return er
}

func TestTheOldestOfEachStageIsTold(t *testing.T) {
	const evict = v1alpha1.ImperativeEvictionInterceptor
	cases := map[string]struct {
		do   func(*Requests)
		want string
	}{
		"nobody is there": {do: func(*Requests) {}},
		"the oldest of several": {
			do: func(m *Requests) {
				m.Observe(at("a", "x.example.com", 300))
				m.Observe(at("b", "x.example.com", 100))
				m.Observe(at("c", "y.example.com", 200))
			},
			want: `{stage="intercepting"} 100`,
		},
		"the oldest moves on": {
			do: func(m *Requests) {
				m.Observe(at("a", "x.example.com", 300))
				m.Observe(at("b", "x.example.com", 100))
				m.Observe(at("b", evict, 400))
			},
			want: `{stage="evicting"} 400` + "\n" + `{stage="intercepting"} 300`,
		},
		"nobody is active yet": {
			do:   func(m *Requests) { m.Observe(at("a", "", 50)) },
			want: `{stage="starting"} 50`,
		},
		"one is held by a finalizer": {
			do: func(m *Requests) {
				er := at("a", "x.example.com", 300)
				er.DeletionTimestamp, er.Finalizers = new(metav1.Unix(500, 0)), []string{"example.com/hold"}
				m.Observe(er)
			},
			want: `{stage="deleting"} 500`,
		},
		"the only one ends": {
			do: func(m *Requests) {
				m.Observe(at("a", evict, 300))
				ended := at("a", "", 300)
				ended.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionEvicted, Status: metav1.ConditionTrue}}
				m.Observe(ended)
			},
		},
		"the only one is deleted": {
			do: func(m *Requests) {
				m.Observe(at("a", evict, 300))
				m.Forget("shop", "a")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			tc.do(NewRequests(registry, true))
			var want string
			if tc.want != "" {
				want = "# HELP " + lifeSince.Name + " " + lifeSince.Help + "\n# TYPE " + lifeSince.Name + " gauge\n"
				for line := range strings.Lines(tc.want + "\n") {
					want += lifeSince.Name + line
				}
			}
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), lifeSince.Name); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEndsAreCounted(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewRequests(registry, true)
	m.TurnEnded(TurnTimedOut)
	m.Finished(OutcomeEvicted, 90*time.Second)
	m.DeadlineEnded(DeadlineTooShort)
	const want = `
# HELP drawbridge_deadlines_total Evicted pods whose interceptors had a deadline, by what became of that: kept, cut_off, or too_short, because an interceptor's minimum did not fit.
# TYPE drawbridge_deadlines_total counter
drawbridge_deadlines_total{result="cut_off"} 0
drawbridge_deadlines_total{result="kept"} 0
drawbridge_deadlines_total{result="too_short"} 1
# HELP drawbridge_interceptor_turns_total Turns of interceptors that ended, by how they did. Events name the interceptor.
# TYPE drawbridge_interceptor_turns_total counter
drawbridge_interceptor_turns_total{result="canceled"} 0
drawbridge_interceptor_turns_total{result="completed"} 0
drawbridge_interceptor_turns_total{result="cut_off"} 0
drawbridge_interceptor_turns_total{result="cut_short"} 0
drawbridge_interceptor_turns_total{result="node_lost"} 0
drawbridge_interceptor_turns_total{result="skipped"} 0
drawbridge_interceptor_turns_total{result="timed_out"} 1
drawbridge_interceptor_turns_total{result="unchecked"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), lifeTurns.Name, lifeDeadlines.Name); err != nil {
		t.Error(err)
	}
	if got := testutil.CollectAndCount(m.duration); got != 1 {
		t.Errorf("%d series of durations, want 1", got)
	}
}
