// Package disruption counts what a PodDisruptionBudget counts, and says which budgets can
// never allow a disruption. It is pure.
//
// The status of a budget may be old: Kubernetes does not look at a budget again when a pod
// loses the label that the budget selects. So the pods are counted here.
package disruption

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// Count is what the disruption controller would count if it looked at the budget now.
type Count struct {
	// Pods are the selected ones that have not ended.
	Pods int
	// Expected, Healthy and Desired are expectedPods, currentHealthy and desiredHealthy of
	// the status.
	Expected, Healthy, Desired int
	// Never is why the budget can never allow a disruption as long as its spec and the
	// replicas stay. It is empty if the budget can, or if that is not certain.
	Never string
	// unready: pods that are not ready may go all the same.
	unready bool
}

// Says is what is said of a budget that can never allow a disruption, after its name;
// empty if it can. It is the same everywhere.
func (c Count) Says() string {
	switch {
	case c.Never == "":
		return ""
	case c.unready:
		return fmt.Sprintf("can never allow the disruption of a pod that is ready (%s)", c.Never)
	default:
		return fmt.Sprintf("can never allow a disruption (%s)", c.Never)
	}
}

// Selected are those of the pods that the budget selects and that have not ended. The
// eviction API skips a budget whose selector it cannot read.
func Selected(b *policyv1.PodDisruptionBudget, all []*corev1.Pod) []*corev1.Pod {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil
	}
	var selected []*corev1.Pod
	for _, pod := range all {
		if pod.Namespace == b.Namespace && !pods.HasEnded(pod) && selector.Matches(labels.Set(pod.Labels)) {
			selected = append(selected, pod)
		}
	}
	return selected
}

// Of counts a budget, given the pods that Selected returns.
//
// A percentage, and maxUnavailable, count the scale of the pods' controllers, which only the
// disruption controller reads: it is taken from the status, or guessed from the pods while
// the status is older than the spec (kubernetes: pkg/controller/disruption/disruption.go,
// getExpectedPodCount).
func Of(b *policyv1.PodDisruptionBudget, selected []*corev1.Pod) Count {
	count := Count{
		Pods:    len(selected),
		unready: b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow,
	}
	t := podCounts{}
	for _, pod := range selected {
		t.add(b, pod)
	}
	count.Healthy = t.healthy
	observed := b.Status.ObservedGeneration >= b.Generation
	switch {
	case t.staying == 0:
	case !byScale(b):
		if b.Spec.MinAvailable != nil {
			count.Expected = t.staying // The status has those that are being deleted, too.
		}
	case observed:
		count.Expected = int(b.Status.ExpectedPods)
	default:
		count.Expected = t.staying
	}
	count.Desired = desired(b, count.Expected)
	// What the API server reads is the status: while that allows some, old or not, they are
	// allowed. Drawbridge's guard is meant to refuse.
	if observed && b.Status.DisruptionsAllowed <= 0 && t.staying > 0 && b.Labels[v1alpha1.GuardBudgetLabel] != "true" {
		count.Never = never(b, count, t)
	}
	return count
}

// podCounts is what matters of the selected pods.
type podCounts struct {
	// staying are not being deleted, and healthy those of them that count as healthy.
	staying, healthy int
	// managed: some pod has a controller.
	managed bool
	// incomplete: the controller of some pod may be about to make more.
	incomplete bool
}

func (t *podCounts) add(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(pod)
	t.managed = t.managed || owner != nil
	_, disrupted := b.Status.DisruptedPods[pod.Name]
	leaving, ready := pod.DeletionTimestamp != nil, pods.IsReady(pod)
	if !leaving {
		t.staying++
	}
	if !leaving && !disrupted && ready {
		t.healthy++
	}
	// A ReplicaSet makes all its pods at once. A StatefulSet waits for the one before to be
	// ready, or to be gone, and others may do so too.
	if (leaving || !ready) && owner != nil && owner.Kind != "ReplicaSet" {
		t.incomplete = true
	}
}

// byScale reports whether the budget counts the scale of controllers, not the pods.
func byScale(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.String
}

// desired is how many pods have to be healthy.
func desired(b *policyv1.PodDisruptionBudget, expected int) int {
	scaled := func(value *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(value, expected, true)
		if err != nil {
			return 0 // The API server refuses what is neither a number nor a percentage.
		}
		return min(n, math.MaxInt32)
	}
	switch {
	case b.Spec.MaxUnavailable != nil:
		return max(expected-scaled(b.Spec.MaxUnavailable), 0)
	case b.Spec.MinAvailable != nil:
		return scaled(b.Spec.MinAvailable)
	default:
		return 0
	}
}

// never is why no number of healthy pods is enough; empty if one is, or if that is not
// certain. Pods beyond the scale, as in a rollout, count as healthy ones too.
func never(b *policyv1.PodDisruptionBudget, c Count, t podCounts) string {
	name, value := "minAvailable", b.Spec.MinAvailable
	if b.Spec.MaxUnavailable != nil {
		name, value = "maxUnavailable", b.Spec.MaxUnavailable
	}
	most := t.staying
	switch {
	case value == nil:
		return "it has neither minAvailable nor maxUnavailable"
	case byScale(b) && !t.managed && (b.Spec.MaxUnavailable == nil || desired(b, 1) == 0):
		return fmt.Sprintf("%s is %s, which counts replicas, and its pods have no controller", name, value)
	case byScale(b) && !t.managed:
		return fmt.Sprintf("%s is %s", name, value)
	case byScale(b):
		most = max(most, c.Expected)
	case t.incomplete:
		return ""
	}
	if c.Expected <= 0 || c.Desired <= 0 || most > c.Desired {
		return ""
	}
	if name == "maxUnavailable" {
		return fmt.Sprintf("%s is %s", name, value)
	}
	return fmt.Sprintf("%s is %s of %s", name, value, counted(most))
}

func counted(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}
