package maintenance

import (
	"slices"
	"strings"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// NodeFacts is what a maintenance knows about one of its nodes.
type NodeFacts struct {
	Name string
	// Stage is the one that the maintenance has on the node; empty if none.
	Stage v1alpha1.MaintenanceStage
	// Unschedulable is spec.unschedulable.
	Unschedulable bool
	Pods          Count
	// Gone is how many pods have left since the node's drain began.
	Gone int32
	// Empty: a live list has shown no pod to evacuate.
	Empty bool
	// Lost: nothing on the node confirms the end of a pod that is deleted, so that is all there
	// is to do for it.
	Lost bool
	// Wave is the position of the wave that has begun last on the node, from 1 on, and
	// WaveSince when it did; 0 before the first one.
	Wave      int
	WaveSince time.Time
	// Waves counts the pods that have to go by the position of their wave; nil if that is not
	// known, or if no other wave can begin.
	Waves []int32
	// Unconfirmed: no live list has confirmed Waves, so no other wave begins yet.
	Unconfirmed bool
	// Behind: the wave of DaemonSets has not begun, and the taint of that of another maintenance keeps
	// pods from the node that it would take.
	Behind bool
}

// open is how many pods have to go before the node is drained.
func (n *NodeFacts) open() int32 {
	if n.Lost {
		return n.Pods.Pending - n.Pods.Deleting
	}
	return n.Pods.Pending
}

// Count counts the pods of a node to evacuate, by their progress.
type Count struct {
	Pending, Evacuating, Blocking, Waiting int32
	// Deleting are those that have only to end.
	Deleting int32
	// WaitingUntil is when the eviction of the last pod that waits for its owner is
	// requested.
	WaitingUntil time.Time
	// Blocked are some of those that block, sorted by namespace and name.
	Blocked []v1alpha1.BlockingPod
}

// PlanInput is everything that a decision about a maintenance depends on.
type PlanInput struct {
	Spec       v1alpha1.NodeMaintenanceSpec
	Generation int64
	// SelectorError is why the selector cannot be read; empty if it can.
	SelectorError string
	// Nodes are those it selects, sorted by name.
	Nodes []NodeFacts
	// Releasing is how many nodes that it does not select still have a stage of it.
	Releasing int
	// Status is the last one.
	Status v1alpha1.NodeMaintenanceStatus
	Now    time.Time
}

// PlanDecision is the decision about a maintenance.
type PlanDecision struct {
	// Stages are the wanted stages of its nodes, by name. A missing node is to be
	// released.
	Stages map[string]v1alpha1.MaintenanceStage
	// Waves are those that begin on its nodes, by name.
	Waves  map[string]WaveBegin
	Status v1alpha1.NodeMaintenanceStatus
	// WakeAt is when to decide again; zero if only an event can change the decision.
	WakeAt time.Time
}

// PlanStep decides about one maintenance. It is pure and total.
//
// A drain begins when all selected nodes are cordoned, on Spec.MaxParallelNodes of them
// at a time, by name. Drains that have begun continue. On each node, waves begin one after
// another.
func PlanStep(in PlanInput) PlanDecision {
	d := PlanDecision{Stages: in.stages()}
	d.Waves, d.WakeAt = in.waves(d.Stages)
	d.Status = in.status(d.Stages)
	return d
}

// begun reports whether the nodes were cordoned before, so that a maintenance that does
// not cordon is at its end and not at its beginning.
func (in *PlanInput) begun() bool { return in.Status.StartTime != nil }

// stages are those that the nodes are to be in.
func (in *PlanInput) stages() map[string]v1alpha1.MaintenanceStage {
	stages := make(map[string]v1alpha1.MaintenanceStage, len(in.Nodes))
	switch {
	case in.Spec.Drain:
		in.drain(stages)
	case in.Spec.Cordon:
		for i := range in.Nodes {
			stages[in.Nodes[i].Name] = v1alpha1.StageCordon
		}
	case !in.begun():
		for i := range in.Nodes {
			stages[in.Nodes[i].Name] = v1alpha1.StagePlanning
		}
	}
	return stages
}

func (in *PlanInput) drain(stages map[string]v1alpha1.MaintenanceStage) {
	slots := len(in.Nodes)
	if most := in.Spec.MaxParallelNodes; most != nil {
		slots = min(slots, int(*most))
	}
	ready := true
	for i := range in.Nodes {
		n := &in.Nodes[i]
		stages[n.Name] = in.drainStage(n)
		if stages[n.Name] == v1alpha1.StageDrain {
			slots--
		}
		ready = ready && n.cordoned()
	}
	for i := range in.Nodes {
		if n := &in.Nodes[i]; ready && slots > 0 && stages[n.Name] == v1alpha1.StageCordon {
			stages[n.Name] = v1alpha1.StageDrain
			slots--
		}
	}
}

// drainStage is the stage of a node to drain, regardless of its turn.
func (in *PlanInput) drainStage(n *NodeFacts) v1alpha1.MaintenanceStage {
	begun := rank(n.Stage) >= rank(v1alpha1.StageDrain)
	switch {
	case !begun:
		return v1alpha1.StageCordon
	case n.open() > 0:
		return v1alpha1.StageDrain
	case n.Empty:
		return v1alpha1.StageDrainComplete
	default:
		return n.Stage
	}
}

// cordoned reports whether the node is unschedulable on behalf of this maintenance.
func (n *NodeFacts) cordoned() bool {
	return n.Unschedulable && rank(n.Stage) >= rank(v1alpha1.StageCordon)
}

// compareNodes sorts by name.
func compareNodes(a, b NodeFacts) int { return strings.Compare(a.Name, b.Name) }

// sortNodes sorts facts as PlanInput requires.
func sortNodes(nodes []NodeFacts) { slices.SortFunc(nodes, compareNodes) }
