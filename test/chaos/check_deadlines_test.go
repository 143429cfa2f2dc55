package chaos

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// cut makes the history one in which a deadline has passed both interceptors over after
// five seconds, neither of which was done.
func cut(change ...func(asks *v1alpha1.Requester, says *v1alpha1.EvictionRequest)) func(*History) {
	return func(h *History) {
		asks, says := v1alpha1.Requester{Name: "spot.example.com", Deadline: new(metav1.NewTime(at(35)))}, request(1, 2)
		says.Status.Deadline, says.Status.DeadlineSource = new(metav1.NewTime(at(5))), "requester "+asks.Name
		says.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionCutOff, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(5))}}
		for _, c := range change {
			c(&asks, says)
		}
		begin := request(1, 0)
		begin.Spec.Requesters = []v1alpha1.Requester{asks}
		h.Requests = []RequestSeen{{At: at(1), Request: begin}, {At: at(5.5), Request: says}}
		h.Ledger = []Entry{began(first, 1)}
	}
}

func TestCheckOfDeadlines(t *testing.T) {
	type change = func(asks *v1alpha1.Requester, says *v1alpha1.EvictionRequest)
	cases := map[string]struct {
		change change
		want   string
		cutOff int
	}{
		"it has come":                       {func(*v1alpha1.Requester, *v1alpha1.EvictionRequest) {}, never, 2},
		"another one had asked for it":      {func(asks *v1alpha1.Requester, _ *v1alpha1.EvictionRequest) { asks.Name = "other.example.com" }, PromiseDone, 0},
		"it had been asked for without one": {func(asks *v1alpha1.Requester, _ *v1alpha1.EvictionRequest) { asks.Deadline = nil }, PromiseDone, 0},
		"one of type Hard had asked": {func(asks *v1alpha1.Requester, says *v1alpha1.EvictionRequest) {
			asks.Deadline, asks.Type, says.Status.DeadlineSource = nil, v1alpha1.RequesterHard, "requester spot.example.com, type Hard"
		}, never, 2},
		"it had not come": {func(_ *v1alpha1.Requester, says *v1alpha1.EvictionRequest) {
			says.Status.Deadline.Time = at(6)
		}, PromiseDone, 0},
		"it had not come by any clock": {func(_ *v1alpha1.Requester, says *v1alpha1.EvictionRequest) {
			says.Status.Deadline.Time, says.Status.Conditions[0].LastTransitionTime.Time = at(20), at(20)
		}, PromiseDone, 0},
		"the request does not say so": {func(_ *v1alpha1.Requester, says *v1alpha1.EvictionRequest) { says.Status.Conditions = nil }, PromiseDone, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := breaks(t, history(cut(tc.change), func(h *History) { h.Deadline = time.Hour }), tc.want)
			if v.CutOff != tc.cutOff {
				t.Errorf("%d cut off, want %d", v.CutOff, tc.cutOff)
			}
		})
	}
}

// Whoever is past the point of no return goes on, and says so.
func TestCheckOfThePointOfNoReturn(t *testing.T) {
	forbids := func(of *v1alpha1.EvictionRequest) *v1alpha1.EvictionRequest {
		of.Status.Interceptors = []v1alpha1.InterceptorStatus{{Name: first, Cancellation: v1alpha1.CancellationForbidden}}
		return of
	}
	says := func(of *v1alpha1.EvictionRequest, condition string) *v1alpha1.EvictionRequest {
		of.Status.Conditions = append(of.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
		return of
	}
	cases := map[string]struct {
		seen   []*v1alpha1.EvictionRequest
		want   string
		wentOn int
	}{
		"it goes on":                  {[]*v1alpha1.EvictionRequest{forbids(request(1, 0)), says(forbids(request(1, 1)), v1alpha1.ConditionCancellationForbidden)}, never, 1},
		"it is canceled nevertheless": {[]*v1alpha1.EvictionRequest{says(forbids(request(1, 0)), v1alpha1.ConditionCanceled)}, PromiseNoWay, 0},
		"it is forgotten":             {[]*v1alpha1.EvictionRequest{forbids(request(1, 0)), request(1, 1)}, PromiseNoWay, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := breaks(t, history(func(h *History) {
				h.Pods, h.Requests = nil, nil
				for i, er := range tc.seen {
					h.Requests = append(h.Requests, RequestSeen{Request: er, At: at(float64(i))})
				}
			}), tc.want)
			if v.WentOn != tc.wentOn {
				t.Errorf("%d went on, want %d", v.WentOn, tc.wentOn)
			}
		})
	}
}
