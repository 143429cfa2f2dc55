package maintenance

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

const (
	// maxNodes and maxNamed keep the object far below etcd's limit of 1.5 MiB. maxNamed
	// is how many blocking pods are named in total, maxNamedPerNode per node.
	maxNodes        = 500
	maxNamed        = 100
	maxNamedPerNode = 3
)

// status returns the next status. It depends on the current stages of the nodes; the
// wanted ones matter only for the overall stage.
func (in *PlanInput) status(next map[string]v1alpha1.MaintenanceStage) v1alpha1.NodeMaintenanceStatus {
	now := metav1.NewTime(in.Now)
	s := v1alpha1.NodeMaintenanceStatus{
		ObservedGeneration: in.Generation,
		StartTime:          in.Status.StartTime,
		CompletionTime:     in.Status.CompletionTime,
		Progress:           in.progress(),
	}
	if in.Spec.Cordon && (s.StartTime == nil || s.CompletionTime != nil) {
		s.StartTime, s.CompletionTime = &now, nil
	}
	s.Stage = in.stage(s)
	if s.Stage == v1alpha1.StageMaintenanceComplete && s.CompletionTime == nil {
		s.CompletionTime = &now
	}
	s.Nodes = in.nodes(s.Stage, next, now)
	for _, c := range in.Status.Conditions {
		s.Conditions = append(s.Conditions, *c.DeepCopy())
	}
	for _, c := range []metav1.Condition{in.selected(), in.cordonedCondition(s.Progress), in.drained(s)} {
		c.ObservedGeneration, c.LastTransitionTime = in.Generation, now
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

func (in *PlanInput) progress() v1alpha1.MaintenanceProgress {
	p := v1alpha1.MaintenanceProgress{Nodes: int32(len(in.Nodes))} //nolint:gosec // Fewer than 2^31 nodes.
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.cordoned() {
			p.NodesCordoned++
		}
		switch {
		case rank(n.Stage) < rank(v1alpha1.StageDrain):
		case n.Stage == v1alpha1.StageDrainComplete && n.open() == 0:
			p.NodesDrained++
		default:
			p.NodesDraining++
		}
		p.PodsPendingEvacuation += n.Pods.Pending
		p.PodsEvacuating += n.Pods.Evacuating
		p.PodsBlocking += n.Pods.Blocking
		p.PodsWaiting += n.Pods.Waiting
		p.PodsEvacuated += n.Gone
	}
	return p
}

// stage is that of the maintenance as a whole.
func (in *PlanInput) stage(s v1alpha1.NodeMaintenanceStatus) v1alpha1.MaintenanceStage {
	p := s.Progress
	switch {
	case !in.Spec.Cordon && s.StartTime == nil:
		return v1alpha1.StagePlanning
	case !in.Spec.Cordon && in.released():
		return v1alpha1.StageMaintenanceComplete
	case !in.Spec.Drain, p.NodesDraining+p.NodesDrained == 0:
		return v1alpha1.StageCordon
	case p.NodesDrained == p.Nodes:
		return v1alpha1.StageDrainComplete
	default:
		return v1alpha1.StageDrain
	}
}

// released reports whether no node has a stage of this maintenance any more.
func (in *PlanInput) released() bool {
	for i := range in.Nodes {
		if in.Nodes[i].Stage != "" {
			return false
		}
	}
	return in.Releasing == 0
}

// nodes are the nodes of the status: the first that are not done, then the others,
// if there are too many.
func (in *PlanInput) nodes(whole v1alpha1.MaintenanceStage, next map[string]v1alpha1.MaintenanceStage, now metav1.Time) []v1alpha1.MaintenanceNodeStatus {
	shown := in.shown()
	last := make(map[string]*v1alpha1.MaintenanceNodeStatus, len(in.Status.Nodes))
	for i := range in.Status.Nodes {
		last[in.Status.Nodes[i].Name] = &in.Status.Nodes[i]
	}
	named := 0
	nodes := make([]v1alpha1.MaintenanceNodeStatus, 0, len(shown))
	for _, n := range shown {
		node := v1alpha1.MaintenanceNodeStatus{
			Name: n.Name, Stage: n.Stage,
			PodsPendingEvacuation: n.Pods.Pending, PodsEvacuating: n.Pods.Evacuating, PodsBlocking: n.Pods.Blocking, PodsWaiting: n.Pods.Waiting, PodsEvacuated: n.Gone,
			PodsInLaterWaves: n.later(),
		}
		if n.Wave > 0 {
			node.Wave = in.Spec.Waves[n.Wave-1].Name
		}
		if n.Pods.Waiting > 0 {
			node.WaitingUntil = new(metav1.NewTime(n.Pods.WaitingUntil))
		}
		switch {
		case whole == v1alpha1.StageMaintenanceComplete:
			node.Stage = whole
		case n.Stage == "":
			node.Stage = v1alpha1.StagePlanning
		}
		names := min(len(n.Pods.Blocked), maxNamedPerNode, maxNamed-named)
		node.BlockingPods = n.Pods.Blocked[:names:names]
		named += names
		if before := last[n.Name]; before != nil && in.Status.CompletionTime == nil {
			node.StartTime, node.CompletionTime = before.StartTime, before.CompletionTime
		}
		switch {
		case next[n.Name] == v1alpha1.StageDrain || n.Stage == v1alpha1.StageDrain:
			// The time of the decision, not of the observation.
			node.CompletionTime = nil
			if node.StartTime == nil {
				node.StartTime = &now
			}
		case n.Stage == v1alpha1.StageDrainComplete:
			if node.CompletionTime == nil {
				node.CompletionTime = &now
			}
		case in.Spec.Cordon:
			node.StartTime, node.CompletionTime = nil, nil
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// shown are the nodes that the status has room for.
func (in *PlanInput) shown() []NodeFacts {
	if len(in.Nodes) <= maxNodes {
		return in.Nodes
	}
	var open, done []NodeFacts
	for _, n := range in.Nodes {
		if n.Stage == v1alpha1.StageDrainComplete {
			done = append(done, n)
		} else {
			open = append(open, n)
		}
	}
	shown := append(open, done...)[:maxNodes:maxNodes]
	sortNodes(shown)
	return shown
}

func (in *PlanInput) selected() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionNodesSelected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNodesFound}
	switch {
	case in.SelectorError != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalidSelector, in.SelectorError
	case len(in.Nodes) == 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNodes
		c.Message = "No node matches spec.nodeSelector. Compare it with the output of: kubectl get nodes --show-labels"
	default:
		c.Message = counted(in.Nodes, "node is selected", "nodes are selected") + "."
	}
	return c
}

func (in *PlanInput) cordonedCondition(p v1alpha1.MaintenanceProgress) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionCordoned, Status: metav1.ConditionFalse}
	switch {
	case !in.Spec.Cordon:
		c.Reason, c.Message = v1alpha1.ReasonNotRequested, "spec.cordon is false."
	case p.Nodes == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoMatchingNodes, "No node is selected."
	case p.NodesCordoned < p.Nodes:
		c.Reason, c.Message = v1alpha1.ReasonCordoning, fmt.Sprintf("%d of %d nodes are cordoned.", p.NodesCordoned, p.Nodes)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonCordoned, "All nodes are cordoned."
	}
	return c
}

func (in *PlanInput) drained(s v1alpha1.NodeMaintenanceStatus) metav1.Condition {
	p := s.Progress
	c := metav1.Condition{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse}
	switch {
	case !in.Spec.Drain:
		c.Reason, c.Message = v1alpha1.ReasonNotRequested, "spec.drain is false."
	case p.Nodes == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoMatchingNodes, "No node is selected."
	case s.Stage == v1alpha1.StageCordon:
		c.Reason, c.Message = v1alpha1.ReasonCordoning, "The drain begins when all nodes are cordoned."
	case s.Stage == v1alpha1.StageDrainComplete:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonDrained, in.gone()
	default:
		c.Reason = v1alpha1.ReasonDraining
		c.Message = fmt.Sprintf("%d of %d nodes are drained, %d pods are still to go", p.NodesDrained, p.Nodes, p.PodsPendingEvacuation)
		if p.PodsBlocking > 0 {
			c.Message += fmt.Sprintf(", %d of them do not get on", p.PodsBlocking)
		}
		if p.PodsWaiting > 0 {
			c.Message += fmt.Sprintf(", %d of them are left to their owners for a while", p.PodsWaiting)
		}
		if later := in.later(); later > 0 {
			c.Message += fmt.Sprintf(", %d of them wait for an earlier wave", later)
		}
		c.Message += "."
	}
	return c
}

// later is how many pods wait on all nodes, because their wave has not begun.
func (in *PlanInput) later() int32 {
	var pods int32
	for i := range in.Nodes {
		pods += in.Nodes[i].later()
	}
	return pods
}

// gone says that all pods have left. Those of lost nodes are only deleted, and their end is left
// to a person.
func (in *PlanInput) gone() string {
	var lost []string
	taint := ""
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if !n.Lost || n.Pods.Deleting == 0 || len(lost) == maxNamedPerNode {
			continue
		}
		lost = append(lost, fmt.Sprintf("%s: %d", n.Name, n.Pods.Deleting))
		taint = "kubectl taint node " + n.Name + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"
	}
	if len(lost) == 0 {
		return "All pods that were to go have gone."
	}
	return fmt.Sprintf("All pods that were to go have gone or, on lost nodes, are deleted (%s). Nobody confirms their end there. If a machine is off, say so: %s",
		strings.Join(lost, ", "), taint)
}

func counted[T any](list []T, one, many string) string {
	if len(list) == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", len(list), many)
}
