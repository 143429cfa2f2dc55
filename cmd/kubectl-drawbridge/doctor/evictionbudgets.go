package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// ungranted is how long evictions may wait for an EvictionBudget that grants none, as for the
// alert DrawbridgeBudgetHolds.
const ungranted = 4 * time.Hour

func evictionBudgets(f *Facts) verdict {
	var v verdict
	v.summary = text.Counted(len(f.EvictionBudgets), "budget")
	if s := f.settings(); s.known && !s.budgets && len(f.EvictionBudgets) > 0 {
		v.warn("deployment/"+f.Namespace+"/"+f.deployment().Name, fmt.Sprintf("it does not decide about EvictionBudgets, and there are %d", len(f.EvictionBudgets)),
			"Set budgets.enabled=true, or delete them: kubectl get evictionbudgets -A")
		return v
	}
	sorted := slices.SortedFunc(slices.Values(f.EvictionBudgets), func(a, b v1alpha1.EvictionBudget) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	var findings []Finding
	for i := range sorted {
		b := &sorted[i]
		if what, do := f.troubleOf(b); what != "" {
			findings = append(findings, Finding{Severity: Warn, Object: fmt.Sprintf("evictionbudget/%s/%s", b.Namespace, b.Name), What: what, Do: do})
		}
	}
	v.findings = bounded(findings, "EvictionBudgets are not in order")
	return v
}

// troubleOf says what is wrong with a budget, and what to do; empty if nothing is.
func (f *Facts) troubleOf(b *v1alpha1.EvictionBudget) (what, do string) {
	edit := fmt.Sprintf("kubectl -n %s edit evictionbudget %s", b.Namespace, b.Name)
	message, refused := condition(b.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	_, nothing := condition(b.Status.Conditions, v1alpha1.ConditionCovers, metav1.ConditionFalse)
	switch {
	case b.Status.ObservedGeneration != b.Generation:
		if f.Now.Sub(b.CreationTimestamp.Time) <= unjudged {
			return "", ""
		}
		return "the manager has not observed its current version", "Wait a moment. If it stays, no replica leads: see \"replicas\"."
	case refused:
		return "it is not accepted, so it allows no evictions: " + message, "Correct it: " + edit
	case nothing || b.Status.MatchingPods != nil && *b.Status.MatchingPods == 0:
		return "it covers no pod", "Compare its selector with the labels of the pods: " + edit
	case budgetstatus.AllowsNothing(b):
		return fmt.Sprintf("it allows no evictions of its %s: maxUnavailable is %s", text.Counted(ptr.Deref(b.Status.MatchingPods, 0), "pod"), b.Spec.MaxUnavailable.String()),
			"If that is not meant, relax it: " + edit
	}
	granting := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionGranting)
	if granting == nil || granting.Status != metav1.ConditionFalse || ptr.Deref(b.Status.Waiting, 0) == 0 || granting.Reason == v1alpha1.ReasonOutsideWindow && b.Status.Window != nil {
		return "", "" // What waits for a window waits as it is meant to.
	}
	since := granting.LastTransitionTime.Time
	if last := b.Status.LastGrantTime; last != nil && last.After(since) {
		since = last.Time
	}
	if held := f.Now.Sub(since); held > ungranted {
		return fmt.Sprintf("it has granted nothing for %s, while %s: %s", duration.HumanDuration(held), evictionsWait(*b.Status.Waiting), granting.Message),
			fmt.Sprintf("See which pods are in the way: kubectl drawbridge budgets %s -n %s; docs/runbooks/budget-holds.md", b.Name, b.Namespace)
	}
	return "", ""
}

func evictionsWait(n int32) string {
	if n == 1 {
		return "1 eviction waits"
	}
	return fmt.Sprintf("%d evictions wait", n)
}
