package maintenance

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	// Taints are spec.taints, and WantsTaint says that a wave of DaemonSets of one of those
	// maintenances has begun or begins now.
	Taints     []corev1.Taint
	WantsTaint bool
	// Left is how many pods of earlier waves are left, by maintenance, where a wave begins
	// although there are some. No decision depends on it.
	Left map[string]int32
	// Restored is when a cordon or a taint that somebody had taken away was last made again; zero
	// if it was not.
	Restored time.Time
	Now      time.Time
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

// Tainting is what happens to our taint of a node.
type Tainting int

const (
	// TaintKept changes nothing.
	TaintKept Tainting = iota
	// TaintMade adds the taint, or corrects it.
	TaintMade
	// TaintEnded removes it.
	TaintEnded
)

func (t Tainting) String() string { return [...]string{"Kept", "Made", "Ended"}[t] }

// NodeDecision has the wanted values of the fields of NodeInput.
type NodeDecision struct {
	Unschedulable bool
	CordonedBy    string
	Stages        Stages
	Phase         v1alpha1.MaintenanceStage
	Waves         translate.BegunWaves
	Taints        []corev1.Taint
	// Cordoning says what happens to the cordon, and Tainting what to the taint.
	Cordoning Cordoning
	Tainting  Tainting
	// Write: something differs from the node.
	Write bool
	// Restores: it makes a cordon or a taint again that somebody has taken away.
	Restores bool
	// WakeAt is when that is to be done, because it was just done; zero if only an event can change
	// the decision.
	WakeAt time.Time
}

// NodeStep decides about one node. It is pure and total.
//
// A cordon that was there before ours stays when the last maintenance ends. One that is
// removed during a maintenance is made again, and is ours from then on. So is the taint. Those of
// others stay as they are. Whoever removes them again and again gets no answer before restorePause;
// all else is decided meanwhile.
func NodeStep(in NodeInput) NodeDecision {
	d := NodeDecision{
		Unschedulable: in.Unschedulable, CordonedBy: in.CordonedBy,
		Stages: in.Wanted, Phase: in.Wanted.furthest(), Waves: in.WantedWaves,
	}
	pause := in.pause()
	known := in.CordonedBy == v1alpha1.CordonOurs || in.CordonedBy == v1alpha1.CordonOther
	switch wanted := in.Wanted.cordons(); {
	case wanted && !known && !in.Unschedulable:
		d.Unschedulable, d.CordonedBy, d.Cordoning = true, v1alpha1.CordonOurs, CordonMade
	case wanted && !known:
		d.CordonedBy, d.Cordoning = v1alpha1.CordonOther, CordonFound
	case wanted && !in.Unschedulable && pause > 0:
		d.WakeAt = in.Now.Add(pause)
	case wanted && !in.Unschedulable:
		d.Unschedulable, d.CordonedBy, d.Cordoning, d.Restores = true, v1alpha1.CordonOurs, CordonMadeAgain, true
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
	begins := d.Waves.String() != in.Waves.String()
	d.Taints, d.Tainting = in.taints()
	switch {
	case d.Tainting != TaintMade, begins: // When a wave begins, its taint is new.
	case pause > 0:
		d.Taints, d.Tainting, d.WakeAt = in.Taints, TaintKept, in.Now.Add(pause)
	default:
		d.Restores = true
	}
	d.Write = begins || d.Tainting != TaintKept || d.Unschedulable != in.Unschedulable || d.CordonedBy != in.CordonedBy || d.Phase != in.Phase || !maps.Equal(d.Stages, in.Stages)
	return d
}

// pause is how long what somebody takes away is not made again, because that was just done. After a
// clock jump it is no longer than intended.
func (in *NodeInput) pause() time.Duration {
	if in.Restored.IsZero() {
		return 0
	}
	return min(max(in.Restored.Add(restorePause).Sub(in.Now), 0), restorePause)
}

// taints are those that the node is to have.
func (in *NodeInput) taints() ([]corev1.Taint, Tainting) {
	ours := oursOf(in.Taints)
	if !in.WantsTaint && len(ours) == 0 || in.WantsTaint && len(ours) == 1 && ours[0].Value == "" {
		return in.Taints, TaintKept
	}
	others := slices.DeleteFunc(slices.Clone(in.Taints), isOurs)
	if !in.WantsTaint {
		return others, TaintEnded
	}
	return append(others, translate.MaintenanceTaint()), TaintMade
}

// oursOf are the taints that only we make: at most one, by the rules of the API.
func oursOf(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return !isOurs(t) })
}

// isOurs reports whether nobody else makes the taint, whatever its value is.
func isOurs(t corev1.Taint) bool {
	ours := translate.MaintenanceTaint()
	return t.MatchTaint(&ours)
}
