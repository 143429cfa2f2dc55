package chaos

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// refusing is a policy engine that has refused a kind of write.
func refusing(write RefusedWrite, from, to float64) func(*History) {
	return func(h *History) {
		h.Refusals = append(h.Refusals, Refused{Interval{at(from), at(to)}, Refusal{Write: write}})
	}
}

// answered are so many writes of one object, one each second from 1 on, with that answer.
func answered(n, code int) func(*History) {
	return func(h *History) {
		for i := range n {
			h.Writes = append(h.Writes, Write{At: at(float64(1 + i)), Of: "pods a", Code: code})
		}
	}
}

// machines makes the pods machines of which nobody has said that they have moved.
func machines(h *History) {
	h.Plan.Workloads[0].Kind = Machines
	h.Ledger = nil
}

// beats is the heartbeat of the second interceptor.
func beats(when float64) func(*History) {
	return func(h *History) {
		h.Requests[1].Request.Status.Interceptors = []v1alpha1.InterceptorStatus{{Name: second, HeartbeatTime: new(metav1.NewTime(at(when)))}}
	}
}

func TestCheckOfRefusals(t *testing.T) {
	type result struct {
		Promise               string
		Refused, Most, Silent int
	}
	cases := map[string]struct {
		history *History
		want    result
	}{
		"a write is refused now and then":         {history(refusing(RefusedPods, 0, 50), answered(maxRefused, http.StatusForbidden)), result{never, maxRefused, maxRefused, 0}},
		"a write that is refused is sent often":   {history(refusing(RefusedPods, 0, 50), answered(maxRefused+1, http.StatusUnprocessableEntity)), result{PromisePace, maxRefused + 1, maxRefused + 1, 0}},
		"what is refused later is not counted":    {history(refusing(RefusedPods, 0, 5), answered(maxRefused+1, http.StatusForbidden)), result{never, 5, 5, 0}},
		"what is not refused may be written more": {history(refusing(RefusedPods, 0, 50), answered(maxRefused+1, http.StatusOK)), result{never, 0, 0, 0}},

		"machines that nobody has moved":                          {history(machines), result{PromiseDone, 0, 0, 0}},
		"machines whose interceptors could not report":            {history(machines, refusing(RefusedRequestStatus, 2, 6)), result{never, 0, 0, 2}},
		"machines whose interceptors could not report later":      {history(machines, refusing(RefusedRequestStatus, 11, 12)), result{PromiseDone, 0, 0, 0}},
		"machines whose interceptors could report for long":       {history(machines, refusing(RefusedRequestStatus, -30, -20)), result{PromiseDone, 0, 0, 0}},
		"machines whose marks were refused":                       {history(machines, refusing(RefusedPods, 2, 6)), result{PromiseDone, 0, 0, 0}},
		"machines whose interceptor has reported in the meantime": {history(machines, refusing(RefusedRequestStatus, 2, 6), beats(7)), result{PromiseDone, 0, 0, 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := Check(tc.history)
			got := result{never, v.Refused, v.MostRefused, v.TimedOut}
			if len(v.Violations) > 0 {
				got.Promise = v.Violations[0].Promise
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, v.Violations)
			}
		})
	}
}

// The longest pause is the last one: 5, 10 and 20 seconds after refusals 0, 5, 15 and 35
// seconds after the first.
func TestPausesEndInTime(t *testing.T) {
	for _, lasted := range []time.Duration{time.Second, 6 * time.Second, 16 * time.Second, 40 * time.Second} {
		next, pause := time.Duration(0), firstPause
		for next <= lasted {
			next, pause = next+pause, 2*pause
		}
		r := Refused{Interval: Interval{start, start.Add(lasted)}}
		if until := r.pausedUntil(); start.Add(next).After(until) {
			t.Errorf("after %s: tried again after %s, which is later than %s", lasted, next, until.Sub(start))
		}
	}
}
