package budget

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

const (
	// maxGroups is how many groups the status has, and maxProblem how much of an error.
	maxGroups  = 50
	maxProblem = 1000
)

// describe makes the status from what was decided. Deletes: the manager may delete pods.
func describe(before *v1alpha1.EvictionBudgetStatus, p *compiled, state grant.State, grants []v1alpha1.BudgetGrant, deletes bool, now time.Time) *v1alpha1.EvictionBudgetStatus {
	status := &v1alpha1.EvictionBudgetStatus{
		ObservedGeneration: p.generation,
		MatchingPods:       number(state.Covered), DisruptionsAllowed: number(state.Allowed), Waiting: number(state.Waiting),
		Grants: grants, Conditions: slices.Clone(before.Conditions),
	}
	if !state.LastGrant.IsZero() {
		status.LastGrantTime = new(metav1.NewTime(state.LastGrant))
	}
	if len(p.rules.Windows) > 0 && !state.Opening.Start.IsZero() {
		status.Window = &v1alpha1.BudgetOpening{Start: metav1.NewTime(state.Opening.Start), End: metav1.NewTime(state.Opening.End)}
	}
	groups := slices.Clone(state.Groups)
	slices.SortStableFunc(groups, func(a, b grant.Group) int {
		return cmp.Or(cmp.Compare(min(b.Disrupted, 1), min(a.Disrupted, 1)), strings.Compare(a.Name, b.Name))
	})
	for _, g := range groups[:min(len(groups), maxGroups)] {
		status.Groups = append(status.Groups, v1alpha1.BudgetGroup{
			Name: g.Name, Expected: *number(g.Expected), Available: *number(g.Available), Disrupted: *number(g.Disrupted), Waiting: *number(g.Waiting),
		})
	}
	set := func(kind string, ok bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: p.generation, LastTransitionTime: metav1.NewTime(now)}
		if !ok {
			c.Status = metav1.ConditionFalse
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	switch {
	case p.problem != nil:
		set(v1alpha1.ConditionAccepted, false, p.rules.Refused, text.OneLine(p.problem.Error(), maxProblem)+". No eviction of the pods it covers is granted until that is repaired.")
	case nothing(p):
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "The spec is well formed. It allows no pod to be unavailable, so nothing is granted: skip the interceptor to evict a pod.")
	default:
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "The spec is well formed.")
	}
	if w := state.Wait; w != nil {
		set(v1alpha1.ConditionGranting, false, w.Reason, w.Message)
	} else {
		set(v1alpha1.ConditionGranting, true, v1alpha1.ReasonGranting, "No eviction waits for it.")
	}
	covers, reason := fmt.Sprintf("It covers %d pods.", state.Covered), v1alpha1.ReasonCoversPods
	if state.Covered == 0 {
		covers, reason = "It covers no pods.", v1alpha1.ReasonCoversNone
	}
	if state.Ungrouped > 0 {
		covers += fmt.Sprintf(` %d of them lack the label %s and are the group "".`, state.Ungrouped, p.podLabel+p.nodeLabel)
	}
	set(v1alpha1.ConditionCovers, state.Covered > 0, reason, covers)
	switch {
	case !p.evicts:
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionExhausted)
	case deletes:
		set(v1alpha1.ConditionExhausted, true, v1alpha1.ReasonExhaustedEvicts, fmt.Sprintf("A pod that a PodDisruptionBudget can never let go is deleted after %s.", p.after))
	default:
		set(v1alpha1.ConditionExhausted, false, v1alpha1.ReasonExhaustedOff, "Drawbridge must not delete pods (value budgets.exhausted.enabled of the chart): a pod that a PodDisruptionBudget can never let go waits.")
	}
	return status
}

func nothing(p *compiled) bool {
	m := p.rules.MaxUnavailable.String()
	return m == "0" || m == "0%"
}

func number(n int) *int32 { return new(int32(max(min(n, 1<<31-1), 0))) }
