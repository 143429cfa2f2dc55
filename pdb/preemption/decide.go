package preemption

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Pod names a pod, for people and for events.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// Preemptor is the pod for which the scheduler makes room.
type Preemptor struct {
	Pod
	// Priority is spec.priority, 0 when it has none.
	Priority int32
	// Entangled is what may restrict its placement besides resources; empty: nothing.
	Entangled string
}

// Budget has the relevant fields of a PodDisruptionBudget. It does not change.
type Budget struct {
	Namespace, Name string
	UID             types.UID
	// ResourceVersion tells whether it has changed.
	ResourceVersion string
	// Allowed is how many disruptions it allows now; 0 while the disruption controller
	// has not observed its current spec, as in the eviction API.
	Allowed int32
	// Disrupted are the names of pods whose disruption it counts already.
	Disrupted map[string]struct{}
	// UnhealthyFree: the eviction of a pod that is not Ready violates nothing
	// (spec.unhealthyPodEvictionPolicy, or there are enough healthy ones).
	UnhealthyFree bool
}

// Victim is a pod that would be deleted.
type Victim struct {
	Pod
	// NodeName is where it runs, empty if that is not known.
	NodeName string
	// Value is the lowest priority of preemptors that may violate its budgets; nil:
	// any may.
	Value *int32
	// Free: its eviction violates no budget, because it is pending, has ended or is
	// being deleted.
	Free bool
	// Ready is its condition.
	Ready bool
	// Budgets select it. They may be missing on nodes where no pod has a Value.
	Budgets []*Budget
	// Unknown: we know only its UID. Then Value is the highest one that it could have,
	// nil if it can have none.
	Unknown bool
}

// guarded reports whether the preemptor may not violate the victim's budgets.
func (v *Victim) guarded(by *Preemptor) bool { return v.Value != nil && by.Priority < *v.Value }

// Candidate is a node that could be used, and its victims.
type Candidate struct {
	Node    string
	Victims []Victim
	// Violations is the scheduler's count; it is returned unchanged.
	Violations int64
}

// Input is everything that a decision depends on.
type Input struct {
	Preemptor  Preemptor
	Candidates []Candidate
	// Charges are disruptions that a budget does not count yet: victims of earlier
	// decisions that are being deleted.
	Charges map[*Budget]int32
}

// Why says why a node may not be used.
type Why string

// Why a node may not be used; the values of the metric's label reason.
const (
	// WhyBudget: a victim's budget would be violated.
	WhyBudget Why = "budget"
	// WhyUnknown: a victim is too new for us to know whether it has budgets.
	WhyUnknown Why = "unknown_victim"
	// WhySpan: victims of the node run on other nodes, too. The scheduler discards
	// our whole answer if such a node is in it.
	WhySpan Why = "spans_nodes"
)

// Dropped is a node that may not be used.
type Dropped struct {
	Node string
	Why  Why
	// Victim is the victim in question.
	Victim Pod
	// Value is the lowest priority that may; of WhyBudget and WhyUnknown.
	Value int32
	// Budget would be violated; of WhyBudget. Disruptions is how many of its pods
	// would go together.
	Budget      *Budget
	Disruptions int32
}

// Decision says which nodes may be used, in their original order.
type Decision struct {
	Kept    []*Candidate
	Dropped []Dropped
	// WithAlternative is how many of those kept have other victims than they came with.
	WithAlternative int
}

// Decide applies the rule of KEP-3280: a preemptor whose priority is below a victim's
// value may not violate that victim's budgets. A node where it would is dropped, all
// others are kept. Victims that share a budget are counted together, also those that
// have no value themselves.
func Decide(in Input) Decision {
	var d Decision
	for i := range in.Candidates {
		candidate := &in.Candidates[i]
		if dropped, ok := check(&in, candidate); ok {
			d.Dropped = append(d.Dropped, dropped)
			continue
		}
		d.Kept = append(d.Kept, candidate)
	}
	if len(d.Dropped) == 0 {
		return d
	}
	kept := d.Kept[:0]
	for _, candidate := range d.Kept {
		if away := elsewhere(candidate); away != nil {
			d.Dropped = append(d.Dropped, Dropped{Node: candidate.Node, Why: WhySpan, Victim: away.Pod})
			continue
		}
		kept = append(kept, candidate)
	}
	d.Kept = kept
	return d
}

// check returns why the node may not be used, if so.
func check(in *Input, candidate *Candidate) (Dropped, bool) {
	guarded := false
	for i := range candidate.Victims {
		v := &candidate.Victims[i]
		if !v.guarded(&in.Preemptor) {
			continue
		}
		if v.Unknown {
			return Dropped{Node: candidate.Node, Why: WhyUnknown, Victim: v.Pod, Value: *v.Value}, true
		}
		guarded = true
	}
	if !guarded {
		return Dropped{}, false
	}
	disruptions := count(candidate.Victims)
	for i := range candidate.Victims {
		v := &candidate.Victims[i]
		if !v.guarded(&in.Preemptor) {
			continue
		}
		for _, b := range v.Budgets {
			if n := disruptions[b]; n > 0 && n > b.Allowed-in.Charges[b] {
				return Dropped{Node: candidate.Node, Why: WhyBudget, Victim: v.Pod, Value: *v.Value, Budget: b, Disruptions: n}, true
			}
		}
	}
	return Dropped{}, false
}

// count counts the disruptions of each budget if all victims are evicted, by the rules
// of the eviction API (kubernetes: pkg/registry/core/pod/storage/eviction.go).
func count(victims []Victim) map[*Budget]int32 {
	disruptions := map[*Budget]int32{}
	for i := range victims {
		for _, b := range victims[i].Budgets {
			if disrupts(&victims[i], b) {
				disruptions[b]++
			}
		}
	}
	return disruptions
}

func disrupts(v *Victim, b *Budget) bool {
	if v.Free {
		return false
	}
	if _, counted := b.Disrupted[v.Name]; counted {
		return false
	}
	return v.Ready || !b.UnhealthyFree
}

// elsewhere returns a victim that runs on another node, nil if there is none.
func elsewhere(candidate *Candidate) *Victim {
	for i := range candidate.Victims {
		if v := &candidate.Victims[i]; v.NodeName != "" && v.NodeName != candidate.Node {
			return v
		}
	}
	return nil
}

// First returns the dropped node to report: one with a budget before the others, then by
// name, so that the same decision gives the same event.
func (d *Decision) First() *Dropped {
	if len(d.Dropped) == 0 {
		return nil
	}
	rank := map[Why]int{WhyBudget: 0, WhyUnknown: 1, WhySpan: 2}
	first := slices.MinFunc(d.Dropped, func(a, b Dropped) int {
		if a.Why != b.Why {
			return rank[a.Why] - rank[b.Why]
		}
		return strings.Compare(a.Node, b.Node)
	})
	return &first
}
