package builder

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Observed sets status.observedGeneration to the present generation, and the conditions
// Accepted and Granting to True.
func (w *EvictionBudgetWrapper) Observed() *EvictionBudgetWrapper {
	w.Status.ObservedGeneration = w.EvictionBudget.Generation
	w.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	return w.Condition(v1alpha1.ConditionGranting, metav1.ConditionTrue, v1alpha1.ReasonGranting, "")
}

// Condition sets a condition of the status.
func (w *EvictionBudgetWrapper) Condition(kind string, status metav1.ConditionStatus, reason, message string) *EvictionBudgetWrapper {
	for i := range w.Status.Conditions {
		if c := &w.Status.Conditions[i]; c.Type == kind {
			c.Status, c.Reason, c.Message = status, reason, message
			return w
		}
	}
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	return w
}

// Group adds a group to the status, all of whose other pods are available.
func (w *EvictionBudgetWrapper) Group(name string, expected, disrupted, waiting int32) *EvictionBudgetWrapper {
	w.Status.Groups = append(w.Status.Groups, v1alpha1.BudgetGroup{
		Name: name, Expected: expected, Available: expected - disrupted, Disrupted: disrupted, Waiting: waiting,
	})
	return w
}

// Counts sets how many pods it covers, how many evictions it would grant, and how many wait.
func (w *EvictionBudgetWrapper) Counts(pods, allowed, waiting int32) *EvictionBudgetWrapper {
	w.Status.MatchingPods, w.Status.DisruptionsAllowed, w.Status.Waiting = &pods, &allowed, &waiting
	return w
}

// Opening sets status.window.
func (w *EvictionBudgetWrapper) Opening(start, end time.Time) *EvictionBudgetWrapper {
	w.Status.Window = &v1alpha1.BudgetOpening{Start: metav1.NewTime(start), End: metav1.NewTime(end)}
	return w
}

// Grant adds a grant for a pod, and makes it the last one.
func (w *EvictionBudgetWrapper) Grant(pod, uid, group string, at time.Time) *EvictionBudgetWrapper {
	w.Status.Grants = append(w.Status.Grants, v1alpha1.BudgetGrant{Pod: pod, PodUID: uid, Group: group, Request: "request-" + uid, Time: metav1.NewMicroTime(at)})
	w.Status.LastGrantTime = ptr.To(metav1.NewTime(at))
	return w
}
