package requester

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// Update is the progress of a request. Updates can be compared with ==.
type Update struct {
	// State in one word.
	State v1alpha1.RequestState
	// Interceptor is the active one, the Position-th of Total; empty and 0 if none is
	// active. Total is 0 until the sequence is known.
	Interceptor     string
	Position, Total int
	// Message is what that interceptor says, or why the request has ended.
	Message string
	// ExpectedFinishTime is when the interceptor expects to finish, in UTC; zero if
	// unknown.
	ExpectedFinishTime time.Time
	// Deadline is when the interceptors have to be done, in UTC; zero if there is none, or
	// the active one has no need to hurry: budgets have not.
	Deadline time.Time
}

// Outcome is how a request ended.
type Outcome struct {
	// State is StateEvicted (the pod has ended, for whatever reason) or StateCanceled
	// (it was refused).
	State v1alpha1.RequestState
	// Reason and Message of the condition of that name.
	Reason, Message string
}

// Observe returns the progress of a request. It is for callers that watch requests
// themselves; Follow does it for one request.
func Observe(er *v1alpha1.EvictionRequest) Update {
	u := Update{State: v1alpha1.Summarize(er).State, Total: len(er.Status.TargetInterceptors)}
	if condition := meta.FindStatusCondition(er.Status.Conditions, string(u.State)); condition != nil {
		u.Message = condition.Message
		return u
	}
	if len(er.Status.ActiveInterceptors) == 0 {
		return u
	}
	u.Interceptor = er.Status.ActiveInterceptors[0]
	u.Position = 1 + slices.IndexFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name == u.Interceptor })
	report := v1alpha1.ReportOf(er, u.Interceptor)
	u.Message = report.Message
	if report.Refusal != nil {
		u.Message = refusalText(report.Refusal)
	}
	if report.ExpectedFinishTime != nil {
		u.ExpectedFinishTime = report.ExpectedFinishTime.UTC()
	}
	if er.Status.Deadline != nil && u.Interceptor != v1alpha1.ImperativeEvictionInterceptor && !v1alpha1.IsUnhurried(u.Interceptor) {
		u.Deadline = er.Status.Deadline.UTC()
	}
	return u
}

// refusalText is shown in place of the message, which is the KEP's sentence: that has a
// count but no reason. The budget's name comes first, because columns are narrow. A budget
// that can never allow is not waited for.
func refusalText(refusal *v1alpha1.EvictionRefusal) string {
	if len(refusal.Budgets) == 0 || refusal.Reason == events.ReasonBudgetNeverAllows {
		return refusal.Message
	}
	return "waiting for budget " + strings.Join(refusal.Budgets, ", ") + ": " + refusal.Message
}

// wish is what a requester that wants an eviction has to do about a request.
type wish int

const (
	// wishJoin: there is no request, or our entry is missing.
	wishJoin wish = iota
	// wishRenew: it was canceled, which is final (ruling R3); delete it and create a
	// new one.
	wishRenew
	// wishWait: it is being deleted; wait for what comes next.
	wishWait
	// wishNothing: we are in the list.
	wishNothing
	// wishOver: the pod has ended.
	wishOver
)

// wishFor decides what the requester of that name does about a request; nil is
// none.
func wishFor(er *v1alpha1.EvictionRequest, name string) wish {
	switch {
	case er == nil:
		return wishJoin
	case meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted):
		return wishOver
	case er.DeletionTimestamp != nil:
		return wishWait
	// An empty list is a cancellation that the controller has not seen yet.
	case meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled), v1alpha1.IsUnwanted(er):
		return wishRenew
	case hasRequester(er, name):
		return wishNothing
	default:
		return wishJoin
	}
}

// outcomeOf is how a request ended, if that is final. A request without requesters is
// not: requesters can create a new one.
func outcomeOf(er *v1alpha1.EvictionRequest) (Outcome, bool) {
	for _, state := range []v1alpha1.RequestState{v1alpha1.StateEvicted, v1alpha1.StateCanceled} {
		condition := meta.FindStatusCondition(er.Status.Conditions, string(state))
		if condition != nil && condition.Status == "True" && condition.Reason != v1alpha1.ReasonNoRequesters {
			return Outcome{State: state, Reason: condition.Reason, Message: condition.Message}, true
		}
	}
	return Outcome{}, false
}

// isRefused reports whether the controller refused the request for this pod. It would
// refuse a new one, too: a pod stays in its group, and a missing pod does not come back
// with the same UID.
func isRefused(er *v1alpha1.EvictionRequest, pod string) bool {
	c := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled)
	return c != nil && c.Status == "True" && c.Reason == v1alpha1.ReasonValidationFailed && er.Spec.Target.Pod != nil && er.Spec.Target.Pod.Name == pod
}

func hasRequester(er *v1alpha1.EvictionRequest, name string) bool {
	return slices.ContainsFunc(er.Spec.Requesters, func(e v1alpha1.Requester) bool { return e.Name == name })
}

// isFull reports whether there is no room for one more entry of that name.
func isFull(er *v1alpha1.EvictionRequest, name string) bool {
	return len(er.Spec.Requesters) >= v1alpha1.MaxRequesters && !hasRequester(er, name)
}
