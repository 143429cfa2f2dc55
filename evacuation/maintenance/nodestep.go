package maintenance

import (
	"maps"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// NodeInput is everything that a decision about a node depends on.
type NodeInput struct {
	// Unschedulable is spec.unschedulable.
	Unschedulable bool
	// CordonedBy is what v1alpha1.CordonAnnotation says; empty if it is missing.
	CordonedBy string
	// Stages are what v1alpha1.MaintenancesAnnotation says, and Phase what
	// v1alpha1.MaintenancePhaseAnnotation says.
	Stages Stages
	Phase  v1alpha1.MaintenanceStage
	// Wanted are the wanted stages of the node: one for each maintenance that selects
	// it.
	Wanted Stages
	// Waves are what v1alpha1.MaintenanceWavesAnnotation says, and WantedWaves those that the
	// maintenances which drain the node have begun last or begin now.
	Waves, WantedWaves translate.BegunWaves
	// Left is how many pods of earlier waves are left, by maintenance, where a wave begins
	// although there are some. No decision depends on it.
	Left map[string]int32
}

// Cordoning is what happens to the cordon of a node.
type Cordoning int

const (
	// CordonKept changes nothing.
	CordonKept Cordoning = iota
	// CordonMade makes the node unschedulable.
	CordonMade
	// CordonFound keeps a cordon that was there before.
	CordonFound
	// CordonMadeAgain makes the node unschedulable again, because it was uncordoned
	// during the maintenance.
	CordonMadeAgain
	// CordonEnded makes the node schedulable.
	CordonEnded
	// CordonLeft leaves the node unschedulable, as it was before.
	CordonLeft
)

func (c Cordoning) String() string {
	return [...]string{"Kept", "Made", "Found", "MadeAgain", "Ended", "Left"}[c]
}

// NodeDecision has the wanted values of the fields of NodeInput.
type NodeDecision struct {
	Unschedulable bool
	CordonedBy    string
	Stages        Stages
	Phase         v1alpha1.MaintenanceStage
	Waves         translate.BegunWaves
	// Cordoning says what happens to the cordon.
	Cordoning Cordoning
	// Write: something differs from the node.
	Write bool
}

// NodeStep decides about one node. It is pure and total.
//
// A cordon that was there before ours stays when the last maintenance ends. One that is
// removed during a maintenance is made again, and is ours from then on.
func NodeStep(in NodeInput) NodeDecision {
	d := NodeDecision{
		Unschedulable: in.Unschedulable, CordonedBy: in.CordonedBy,
		Stages: in.Wanted, Phase: in.Wanted.furthest(), Waves: in.WantedWaves,
	}
	known := in.CordonedBy == v1alpha1.CordonOurs || in.CordonedBy == v1alpha1.CordonOther
	switch wanted := in.Wanted.cordons(); {
	case wanted && !known && !in.Unschedulable:
		d.Unschedulable, d.CordonedBy, d.Cordoning = true, v1alpha1.CordonOurs, CordonMade
	case wanted && !known:
		d.CordonedBy, d.Cordoning = v1alpha1.CordonOther, CordonFound
	case wanted && !in.Unschedulable:
		d.Unschedulable, d.CordonedBy, d.Cordoning = true, v1alpha1.CordonOurs, CordonMadeAgain
	case !wanted && in.CordonedBy == v1alpha1.CordonOurs:
		d.Unschedulable, d.CordonedBy = false, ""
		if in.Unschedulable {
			d.Cordoning = CordonEnded
		}
	case !wanted && in.CordonedBy == v1alpha1.CordonOther:
		d.CordonedBy = ""
		if in.Unschedulable {
			d.Cordoning = CordonLeft
		}
	case !wanted:
		d.CordonedBy = ""
	}
	d.Write = d.Unschedulable != in.Unschedulable || d.CordonedBy != in.CordonedBy || d.Phase != in.Phase || !maps.Equal(d.Stages, in.Stages) ||
		d.Waves.String() != in.Waves.String()
	return d
}
