package forecast

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// pdb is a PodDisruptionBudget.
type pdb struct {
	namespace, name string
	// spare is how many healthy pods there are more than needed; it may be negative.
	spare int
	// always: pods that are not ready may always go. never: it expects no pods, so that it
	// allows none.
	always, never bool
	text          string
}

// findPDBs finds which select the pods to go, and which pods will be healthy soon.
func (w *world) findPDBs() {
	byUID := map[types.UID]int{}
	for i := range w.pods {
		byUID[w.pods[i].pod.UID] = i
	}
	spaces := byNamespace(w.in.Pods)
	refills := map[types.UID]int{}
	for _, from := range w.in.PDBs {
		selector, err := metav1.LabelSelectorAsSelector(from.Spec.Selector)
		if err != nil || from.Labels[v1alpha1.GuardBudgetLabel] == "true" {
			continue // The guard opens when the interceptors are done.
		}
		index := len(w.pdbs)
		var selected []*corev1.Pod
		for _, pod := range spaces[from.Namespace] {
			if !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			selected = append(selected, pod)
			if i, ok := byUID[pod.UID]; ok {
				w.pods[i].pdbs = append(w.pods[i].pdbs, index)
			} else if c := metav1.GetControllerOfNoCopy(pod); c != nil && w.isStarting(pod) {
				i, ok := refills[pod.UID]
				if !ok {
					i = len(w.refills)
					refills[pod.UID] = i
					w.refills = append(w.refills, refill{pod: pod, owner: c.UID})
				}
				w.refills[i].pdbs = append(w.refills[i].pdbs, index)
			}
		}
		if from.Status.ObservedGeneration < from.Generation {
			from = countedNow(from, selected)
			w.leaveOut(fmt.Sprintf("what PodDisruptionBudget %s allows, which is not counted yet: it is guessed from its pods", client.ObjectKeyFromObject(from)))
		}
		w.pdbs = append(w.pdbs, pdbOf(from))
	}
	for i := range w.pods {
		v := &w.pods[i]
		if len(v.pdbs) > 1 && !v.leaving {
			var names []string
			for _, p := range v.pdbs[:min(len(v.pdbs), 5)] {
				names = append(names, w.pdbs[p].name)
			}
			w.blockers = append(w.blockers, w.blocker(v, "PodDisruptionBudgets "+strings.Join(names, ", "),
				fmt.Sprintf("%d of them select it, and the eviction API supports one", len(v.pdbs)), "change their selectors, so that one is left"))
		}
	}
}

// countedNow is the budget with a status as the disruption controller makes it, for one that it
// has not looked at yet. It takes the pods that there are for those that there should be.
func countedNow(from *policyv1.PodDisruptionBudget, selected []*corev1.Pod) *policyv1.PodDisruptionBudget {
	b := from.DeepCopy()
	expected, healthy := 0, 0
	for _, pod := range selected {
		if pods.HasEnded(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		expected++
		if ready(pod) {
			healthy++
		}
	}
	scaled := func(value *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(value, expected, true)
		if err != nil {
			return 0 // The API server refuses what is neither a number nor a percentage.
		}
		return n
	}
	desired := 0
	switch {
	case b.Spec.MaxUnavailable != nil:
		desired = max(expected-scaled(b.Spec.MaxUnavailable), 0)
	case b.Spec.MinAvailable != nil:
		desired = scaled(b.Spec.MinAvailable)
	default: // A budget that says neither counts none.
		expected = 0
	}
	allowed := 0
	if expected > 0 {
		allowed = max(healthy-desired, 0)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptionsAllowed: int32(min(allowed, math.MaxInt32)),
		ExpectedPods: int32(min(expected, math.MaxInt32)), CurrentHealthy: int32(min(healthy, math.MaxInt32)), DesiredHealthy: int32(min(desired, math.MaxInt32)),
	}
	return b
}

// pdbOf reads what the disruption controller has counted.
func pdbOf(from *policyv1.PodDisruptionBudget) pdb {
	status := &from.Status
	p := pdb{
		namespace: from.Namespace, name: from.Name,
		spare:  int(status.DisruptionsAllowed),
		always: from.Spec.UnhealthyPodEvictionPolicy != nil && *from.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow,
		never:  status.ExpectedPods == 0 && status.DisruptionsAllowed == 0,
	}
	if status.DisruptionsAllowed <= 0 && status.CurrentHealthy < status.DesiredHealthy {
		p.spare = int(status.CurrentHealthy - status.DesiredHealthy)
	}
	p.text = fmt.Sprintf("it needs %d of %d pods, and %d are healthy", status.DesiredHealthy, status.ExpectedPods, status.CurrentHealthy)
	return p
}
