package budgetstatus

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Covering returns the budgets that cover the pod, by name.
func Covering(pod *corev1.Pod, all []v1alpha1.EvictionBudget) []*v1alpha1.EvictionBudget {
	var found []*v1alpha1.EvictionBudget
	for i := range all {
		if Covers(&all[i], pod) {
			found = append(found, &all[i])
		}
	}
	slices.SortFunc(found, func(a, b *v1alpha1.EvictionBudget) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Covers reports whether the budget covers the pod. One whose selector cannot be read covers
// none.
func Covers(budget *v1alpha1.EvictionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	return err == nil && budget.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels))
}

// GroupOf is the group of a pod; false if it depends on a node that is not known.
func GroupOf(budget *v1alpha1.EvictionBudget, pod *corev1.Pod, node *corev1.Node) (string, bool) {
	by := budget.Spec.GroupBy
	switch {
	case by == nil:
		return "", true
	case by.PodLabel != "":
		return pod.Labels[by.PodLabel], true
	case node == nil:
		return "", false
	default:
		return node.Labels[by.NodeLabel], true
	}
}

// MaxUnavailable is how many pods of a group with so many may be unavailable.
func MaxUnavailable(budget *v1alpha1.EvictionBudget, expected int32) int32 {
	value := ptr.Deref(budget.Spec.MaxUnavailable, intstr.FromInt32(1))
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(expected), true)
	if err != nil {
		return 0 // The schema refuses such a value.
	}
	return int32(n) //nolint:gosec // The schema bounds it, and the number of pods.
}

// AllowsNothing reports whether no pod may be unavailable.
func AllowsNothing(budget *v1alpha1.EvictionBudget) bool { return MaxUnavailable(budget, 1) == 0 }

// Ready reports whether the pod is Ready.
func Ready(pod *corev1.Pod) bool { return !readySince(pod).IsZero() }

// readySince is zero if the pod is not Ready.
func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			// A pod that was made by hand may lack the time; then it has long been Ready.
			return latest(c.LastTransitionTime.Time, time.Unix(0, 0))
		}
	}
	return time.Time{}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Unavailable says in a few words why the budget does not count a pod as available; empty if
// it does.
func Unavailable(budget *v1alpha1.EvictionBudget, pod *corev1.Pod, now time.Time) string {
	since := readySince(pod)
	settled := since.Add(ptr.Deref(budget.Spec.Settle, metav1.Duration{}).Duration)
	switch {
	case pod.DeletionTimestamp != nil:
		return "is being deleted"
	case pod.Spec.NodeName == "":
		return "has no node"
	case since.IsZero():
		return "is not ready"
	case slices.ContainsFunc(budget.Status.Grants, func(g v1alpha1.BudgetGrant) bool { return g.PodUID == string(pod.UID) }):
		return "is about to be evicted"
	case now.Before(settled):
		return "counts in " + duration.HumanDuration(settled.Sub(now)) + " (settle)"
	default:
		return ""
	}
}
