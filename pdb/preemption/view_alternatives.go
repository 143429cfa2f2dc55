package preemption

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
)

// promising returns the dropped nodes, in the order in which they came, that have a budget
// in the way and another pod that could go instead as far as the view knows. Most have
// none: the other pods are protected, too, or as important as the preemptor.
func (v *View) promising(in Input, dropped []Dropped) []*Candidate {
	budget := map[string]bool{}
	for i := range dropped {
		if dropped[i].Why == WhyBudget {
			budget[dropped[i].Node] = true
		}
	}
	byNode := make(map[string]*Candidate, len(budget))
	for i := range in.Candidates {
		if candidate := &in.Candidates[i]; budget[candidate.Node] {
			byNode[candidate.Node] = candidate
		}
	}
	found := v.withOthers(&in.Preemptor, byNode)
	var promising []*Candidate
	for i := range in.Candidates {
		if found[in.Candidates[i].Node] {
			promising = append(promising, &in.Candidates[i])
		}
	}
	return promising
}

// withOthers returns those of the nodes that have another pod that could go. It visits all
// pods once, which takes less time than the question itself.
func (v *View) withOthers(preemptor *Preemptor, byNode map[string]*Candidate) map[string]bool {
	found := map[string]bool{}
	if len(byNode) == 0 {
		return found
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	var scratch packed.Scratch // There may be very many.
	for uid, held := range v.pods {
		pod := scratch.Of(held)
		candidate := byNode[pod.Spec.NodeName]
		if candidate == nil || found[candidate.Node] || priorityOf(pod) >= preemptor.Priority {
			continue
		}
		var other Victim
		v.describe(&other, pod)
		if expendable(preemptor, &other, pod) && entangled(pod) == "" && find(candidate.Victims, uid) == nil {
			found[candidate.Node] = true
		}
	}
	return found
}

// alternativeInput returns what is known of a node and its pods, all of it of one moment:
// since the candidate was described its budgets may have changed.
func (v *View) alternativeInput(preemptor Preemptor, candidate *Candidate, sent map[types.UID]*corev1.Pod, pods []corev1.Pod) AlternativeInput {
	asked := Candidate{Node: candidate.Node, Violations: candidate.Violations, Victims: make([]Victim, len(candidate.Victims))}
	for i := range candidate.Victims {
		asked.Victims[i].UID = candidate.Victims[i].UID
	}
	in := Input{Preemptor: preemptor, Candidates: []Candidate{asked}}
	v.mu.RLock()
	defer v.mu.RUnlock()
	v.complete(&in, sent)
	now := v.clock.Now()
	var nodePods []NodePod
	for i := range pods {
		pod := &pods[i]
		cached := v.pod(pod.UID)
		if cached == nil {
			continue // It is gone, or very new.
		}
		o := NodePod{Victim: Victim{Pod: Pod{UID: pod.UID}, Budgets: v.budgetsOf(pod, in.Charges, now)}, Object: pod}
		v.describe(&o.Victim, pod)
		o.Free = o.Free || free(cached)
		nodePods = append(nodePods, o)
	}
	return AlternativeInput{Preemptor: preemptor, Candidate: in.Candidates[0], NodePods: nodePods, Charges: in.Charges}
}
