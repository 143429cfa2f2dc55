package forecast

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
)

// pdb is a PodDisruptionBudget.
type pdb struct {
	namespace, name string
	// spare is how many healthy pods there are more than needed; it may be negative.
	spare int
	// always: pods that are not ready may always go. never: it expects no pods, so that it
	// allows none.
	always, never bool
	// text says what it counts, and remedy what to do.
	text, remedy string
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
		for _, pod := range spaces[from.Namespace] {
			if !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
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
			w.leaveOut(fmt.Sprintf("what PodDisruptionBudget %s allows, which is not counted yet: it is guessed from its pods", client.ObjectKeyFromObject(from)))
		}
		w.pdbs = append(w.pdbs, pdbOf(from, disruption.Selected(from, spaces[from.Namespace])))
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

// pdbOf is the budget with what it counts now: its status may be older than its pods.
func pdbOf(from *policyv1.PodDisruptionBudget, selected []*corev1.Pod) pdb {
	count := disruption.Of(from, selected)
	allows := from.Status.ObservedGeneration >= from.Generation && from.Status.DisruptionsAllowed > 0
	p := pdb{
		namespace: from.Namespace, name: from.Name,
		spare:  count.Healthy - count.Desired,
		always: from.Spec.UnhealthyPodEvictionPolicy != nil && *from.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow,
		never:  count.Expected == 0 && !allows,
		text:   fmt.Sprintf("it needs %d of %d pods, and %d are healthy, so that it does not allow the eviction", count.Desired, count.Expected, count.Healthy),
		remedy: "let the budget allow a disruption, add replicas, or make its pods ready",
	}
	if allows {
		p.spare = max(p.spare, 1) // The API server believes the status, and then it is counted again.
	}
	if never := count.Says(); never != "" {
		p.text, p.remedy = "it "+never, "let the budget allow a disruption, add replicas, or let an EvictionBudget have its pods deleted (spec.exhausted)"
	}
	return p
}
