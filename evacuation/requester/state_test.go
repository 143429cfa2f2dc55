package requester

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	us   = "drain.example.com"
	them = "other.example.com"
)

// wanted is the request of the pod web with these requesters.
func wanted(requesters ...string) *v1alpha1.EvictionRequest {
	return builder.EvictionRequest("shop", "web", "u1").Requesters(requesters...).Obj()
}

// with gives a request a condition.
func with(er *v1alpha1.EvictionRequest, condition, reason string) *v1alpha1.EvictionRequest {
	er.Status.Conditions = append(er.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: "because"})
	return er
}

func TestWhatARequesterDoes(t *testing.T) {
	deleting := wanted(us)
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	cases := map[string]struct {
		request *v1alpha1.EvictionRequest
		want    wish
	}{
		"joins when there is no request":                       {nil, wishJoin},
		"joins when only others are there":                     {wanted(them), wishJoin},
		"has nothing to do when it is there":                   {wanted(them, us), wishNothing},
		"begins anew when all requesters were removed":         {wanted(), wishRenew},
		"begins anew when that was seen":                       {with(wanted(), v1alpha1.ConditionCanceled, v1alpha1.ReasonNoRequesters), wishRenew},
		"begins anew when the request was refused":             {with(wanted(us), v1alpha1.ConditionCanceled, v1alpha1.ReasonValidationFailed), wishRenew},
		"waits while the request is being deleted":             {deleting, wishWait},
		"is done when the pod was evicted":                     {with(wanted(us), v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted), wishOver},
		"is done when the pod was evicted without it":          {with(wanted(them), v1alpha1.ConditionEvicted, v1alpha1.ReasonPodTerminal), wishOver},
		"is done when the pod was evicted with nobody left":    {with(wanted(), v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted), wishOver},
		"has nothing to do about a condition it does not know": {with(wanted(us), "example.com/Seen", "Yes"), wishNothing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := wishFor(tc.request, us); got != tc.want {
				t.Errorf("wish %d, want %d", got, tc.want)
			}
		})
	}
}

func TestHowARequestHasEnded(t *testing.T) {
	cases := map[string]struct {
		request *v1alpha1.EvictionRequest
		want    Outcome
		over    bool
	}{
		"not yet":         {request: wanted(us)},
		"the pod is gone": {with(wanted(us), v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted), Outcome{v1alpha1.StateEvicted, v1alpha1.ReasonPodDeleted, "because"}, true},
		"it was refused":  {with(wanted(us), v1alpha1.ConditionCanceled, v1alpha1.ReasonValidationFailed), Outcome{v1alpha1.StateCanceled, v1alpha1.ReasonValidationFailed, "because"}, true},
		"a cancellation can be answered by a join": {request: with(wanted(), v1alpha1.ConditionCanceled, v1alpha1.ReasonNoRequesters)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, over := outcomeOf(tc.request)
			if diff := cmp.Diff(tc.want, got); diff != "" || over != tc.over {
				t.Errorf("over %t, want %t; outcome (-want +got):\n%s", over, tc.over, diff)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	eta := metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.FixedZone("CET", 3600)))
	turn := func(active int, message string, eta *metav1.Time) *v1alpha1.EvictionRequest {
		er := wanted(us)
		for i, name := range []string{"a.example.com", "b.example.com", v1alpha1.ImperativeEvictionInterceptor} {
			er.Status.TargetInterceptors = append(er.Status.TargetInterceptors, v1alpha1.Interceptor{Name: name})
			report := v1alpha1.InterceptorStatus{Name: name}
			if i == active {
				er.Status.ActiveInterceptors = []string{name}
				report.Message, report.ExpectedFinishTime = message, eta
			}
			er.Status.Interceptors = append(er.Status.Interceptors, report)
		}
		return er
	}
	refused := func(budgets ...string) *v1alpha1.EvictionRequest {
		er := turn(2, "Could not evict a pod", nil)
		er.Status.Interceptors[2].Refusal = &v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: budgets, Message: "it says no"}
		return er
	}
	never := func() *v1alpha1.EvictionRequest {
		er := refused("web")
		er.Status.Interceptors[2].Refusal.Reason = "BudgetNeverAllows"
		er.Status.Interceptors[2].Refusal.Message = "PodDisruptionBudget web can never allow a disruption (maxUnavailable is 0)."
		return er
	}
	hurried := func(er *v1alpha1.EvictionRequest) *v1alpha1.EvictionRequest {
		er.Status.Deadline = &eta
		return er
	}
	cases := map[string]struct {
		request *v1alpha1.EvictionRequest
		want    Update
	}{
		"it has a deadline": {
			hurried(turn(1, "", nil)),
			Update{State: v1alpha1.StateIntercepting, Interceptor: "b.example.com", Position: 2, Total: 3, Deadline: eta.UTC()},
		},
		"a budget has none": {
			func() *v1alpha1.EvictionRequest {
				er := hurried(turn(-1, "", nil))
				er.Status.TargetInterceptors[1].Name, er.Status.ActiveInterceptors = v1alpha1.BudgetInterceptor, []string{v1alpha1.BudgetInterceptor}
				return er
			}(),
			Update{State: v1alpha1.StateIntercepting, Interceptor: v1alpha1.BudgetInterceptor, Position: 2, Total: 3},
		},
		"native responders have none": {
			func() *v1alpha1.EvictionRequest {
				er := hurried(turn(-1, "", nil))
				er.Status.TargetInterceptors[1].Name, er.Status.ActiveInterceptors = v1alpha1.NativeInterceptor, []string{v1alpha1.NativeInterceptor}
				return er
			}(),
			Update{State: v1alpha1.StateIntercepting, Interceptor: v1alpha1.NativeInterceptor, Position: 2, Total: 3},
		},
		"the deadline has come": {
			hurried(turn(2, "", nil)),
			Update{State: v1alpha1.StateEvicting, Interceptor: v1alpha1.ImperativeEvictionInterceptor, Position: 3, Total: 3},
		},
		"a budget refuses": {
			refused("web"),
			Update{State: v1alpha1.StateBlocked, Interceptor: v1alpha1.ImperativeEvictionInterceptor, Position: 3, Total: 3, Message: "waiting for budget web: it says no"},
		},
		"a budget can never allow": {
			never(),
			Update{State: v1alpha1.StateBlocked, Interceptor: v1alpha1.ImperativeEvictionInterceptor, Position: 3, Total: 3, Message: "PodDisruptionBudget web can never allow a disruption (maxUnavailable is 0)."},
		},
		"somebody else refuses": {
			refused(),
			Update{State: v1alpha1.StateBlocked, Interceptor: v1alpha1.ImperativeEvictionInterceptor, Position: 3, Total: 3, Message: "it says no"},
		},
		"nobody has looked yet": {wanted(us), Update{State: v1alpha1.StatePending}},
		"an interceptor works": {
			turn(1, "moving", &eta),
			Update{State: v1alpha1.StateIntercepting, Interceptor: "b.example.com", Position: 2, Total: 3, Message: "moving", ExpectedFinishTime: time.Date(2026, 11, 1, 11, 0, 0, 0, time.UTC)},
		},
		"the last one evicts": {
			turn(2, "", nil),
			Update{State: v1alpha1.StateEvicting, Interceptor: v1alpha1.ImperativeEvictionInterceptor, Position: 3, Total: 3},
		},
		"between two turns": {turn(-1, "", nil), Update{State: v1alpha1.StatePending, Total: 3}},
		"the pod is gone": {
			with(turn(-1, "", nil), v1alpha1.ConditionEvicted, v1alpha1.ReasonPodDeleted),
			Update{State: v1alpha1.StateEvicted, Total: 3, Message: "because"},
		},
		"it was canceled": {
			with(wanted(), v1alpha1.ConditionCanceled, v1alpha1.ReasonNoRequesters),
			Update{State: v1alpha1.StateCanceled, Message: "because"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Observe(tc.request)); diff != "" {
				t.Errorf("update (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARequestIsFull(t *testing.T) {
	var names []string
	for i := range v1alpha1.MaxRequesters {
		names = append(names, fmt.Sprintf("r%d.example.com", i))
	}
	if !isFull(wanted(names...), us) {
		t.Error("a hundred others leave room")
	}
	if isFull(wanted(names...), names[3]) {
		t.Error("there is no room for one of the hundred")
	}
	if isFull(wanted(names[1:]...), us) {
		t.Error("99 others leave no room")
	}
}
