package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestSummarizeARequestThatIsHeld(t *testing.T) {
	held := func(conditions ...metav1.Condition) *v1alpha1.EvictionRequest {
		er := &v1alpha1.EvictionRequest{}
		er.DeletionTimestamp, er.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/hold"}
		er.Spec.Requesters = []v1alpha1.Requester{{Name: "a.example.com"}}
		er.Status.TargetInterceptors = []v1alpha1.Interceptor{{Name: "b.example.com"}}
		er.Status.ActiveInterceptors = []string{"b.example.com"}
		er.Status.Conditions = conditions
		return er
	}
	want := &v1alpha1.EvictionRequestSummary{State: v1alpha1.StateDeleting, Requesters: 1}
	if diff := cmp.Diff(want, v1alpha1.Summarize(held())); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	want.State = v1alpha1.StateEvicted
	evicted := metav1.Condition{Type: v1alpha1.ConditionEvicted, Status: metav1.ConditionTrue}
	if diff := cmp.Diff(want, v1alpha1.Summarize(held(evicted))); diff != "" {
		t.Errorf("summary when the pod has ended (-want +got):\n%s", diff)
	}
}

func TestSummarize(t *testing.T) {
	const (
		a = "a.example.com"
		b = "b.example.com"
		c = v1alpha1.ImperativeEvictionInterceptor
	)
	eta := metav1.NewTime(time.Date(2026, 8, 22, 10, 0, 0, 0, time.UTC))
	type status = v1alpha1.EvictionRequestStatus
	targets := []v1alpha1.Interceptor{{Name: a}, {Name: b}, {Name: c}}
	yes := func(name string) []metav1.Condition {
		return []metav1.Condition{{Type: name, Status: metav1.ConditionTrue}}
	}

	cases := map[string]struct {
		requesters int
		status     status
		want       v1alpha1.EvictionRequestSummary
	}{
		"a request the controller has not seen yet is pending": {
			requesters: 1,
			want:       v1alpha1.EvictionRequestSummary{State: v1alpha1.StatePending, Requesters: 1},
		},
		"the active interceptor is shown with its place and its ETA": {
			requesters: 2,
			status: status{
				TargetInterceptors: targets, ActiveInterceptors: []string{b}, ProcessedInterceptors: []string{a},
				Interceptors: []v1alpha1.InterceptorStatus{{Name: a}, {Name: b, ExpectedFinishTime: &eta}, {Name: c}},
			},
			want: v1alpha1.EvictionRequestSummary{State: v1alpha1.StateIntercepting, Interceptor: "b.example.com 2/3", ExpectedFinishTime: &eta, Requesters: 2},
		},
		"the ETA of another interceptor is not shown": {
			requesters: 1,
			status: status{
				TargetInterceptors: targets, ActiveInterceptors: []string{b}, ProcessedInterceptors: []string{a},
				Interceptors: []v1alpha1.InterceptorStatus{{Name: a, ExpectedFinishTime: &eta}, {Name: b}, {Name: c}},
			},
			want: v1alpha1.EvictionRequestSummary{State: v1alpha1.StateIntercepting, Interceptor: "b.example.com 2/3", Requesters: 1},
		},
		"the last interceptor evicts": {
			requesters: 1,
			status: status{
				TargetInterceptors: targets, ActiveInterceptors: []string{c}, ProcessedInterceptors: []string{a, b},
				Interceptors: []v1alpha1.InterceptorStatus{{Name: a, Retries: 1}, {Name: b}, {Name: c}},
			},
			want: v1alpha1.EvictionRequestSummary{State: v1alpha1.StateEvicting, Interceptor: "imperative-eviction.k8s.io 3/3", Requesters: 1},
		},
		"an eviction that was refused is blocked": {
			requesters: 1,
			status: status{
				TargetInterceptors: targets[2:], ActiveInterceptors: []string{c},
				Interceptors: []v1alpha1.InterceptorStatus{{Name: c, Retries: 1, Refusal: &v1alpha1.EvictionRefusal{Reason: "ServerOverloaded"}}},
			},
			want: v1alpha1.EvictionRequestSummary{State: v1alpha1.StateBlocked, Interceptor: "imperative-eviction.k8s.io 1/1", Requesters: 1},
		},
		"budgets that refuse are named": {
			requesters: 1,
			status: status{
				TargetInterceptors: targets[2:], ActiveInterceptors: []string{c},
				Interceptors: []v1alpha1.InterceptorStatus{{Name: c, Retries: 1, Refusal: &v1alpha1.EvictionRefusal{Reason: "SeveralBudgets", Budgets: []string{"db", "web"}}}},
			},
			want: v1alpha1.EvictionRequestSummary{State: v1alpha1.StateBlocked, Interceptor: "imperative-eviction.k8s.io 1/1", Budget: "db,web", Requesters: 1},
		},
		"an eviction that was refused before and is accepted now is not blocked": {
			requesters: 1,
			status: status{
				TargetInterceptors: targets[2:], ActiveInterceptors: []string{c},
				Interceptors: []v1alpha1.InterceptorStatus{{Name: c, Retries: 4, Message: "The pod is terminating."}},
			},
			want: v1alpha1.EvictionRequestSummary{State: v1alpha1.StateEvicting, Interceptor: "imperative-eviction.k8s.io 1/1", Requesters: 1},
		},
		"between two interceptors it is pending": {
			requesters: 1,
			status:     status{TargetInterceptors: targets, ProcessedInterceptors: []string{a}},
			want:       v1alpha1.EvictionRequestSummary{State: v1alpha1.StatePending, Requesters: 1},
		},
		"a canceled request shows no interceptor": {
			status: status{TargetInterceptors: targets, ActiveInterceptors: []string{a}, Conditions: yes(v1alpha1.ConditionCanceled)},
			want:   v1alpha1.EvictionRequestSummary{State: v1alpha1.StateCanceled},
		},
		"an evicted request shows no interceptor": {
			requesters: 1,
			status:     status{TargetInterceptors: targets, ActiveInterceptors: []string{a}, Conditions: yes(v1alpha1.ConditionEvicted)},
			want:       v1alpha1.EvictionRequestSummary{State: v1alpha1.StateEvicted, Requesters: 1},
		},
		"a condition that is not True says nothing": {
			requesters: 1,
			status:     status{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionEvicted, Status: metav1.ConditionFalse}}},
			want:       v1alpha1.EvictionRequestSummary{State: v1alpha1.StatePending, Requesters: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			er := &v1alpha1.EvictionRequest{
				Spec:   v1alpha1.EvictionRequestSpec{Requesters: make([]v1alpha1.Requester, tc.requesters)},
				Status: tc.status,
			}
			if diff := cmp.Diff(&tc.want, v1alpha1.Summarize(er)); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}
