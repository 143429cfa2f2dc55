package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Responder of a workload's pods: it stands in their spec.evictionResponders and knows only
// Kubernetes' own API.
type Responder struct {
	Behaviour

	// Domain of its name, whose place in the order of the API server differs.
	Domain string
	// Priority from 1000 to 100000.
	Priority int32
}

const (
	// nativePercent is how likely the control plane of a plan serves lifecycle.k8s.io.
	nativePercent = 60
	// respondedPercent is how likely the pods of any workload have responders then.
	respondedPercent = 25
	// crowdedPercent is how likely responders are as many as a pod may have.
	crowdedPercent = 10
	// maxResponders is how many there are otherwise.
	maxResponders = 3
	// maxNativeWork is how long a native responder works at most, and maxCrowdedWork if there are
	// ten of them.
	maxNativeWork, maxCrowdedWork = 1500 * time.Millisecond, 200 * time.Millisecond
)

// nativeWrites are the writes to lifecycle.k8s.io that a policy engine may refuse.
var nativeWrites = []RefusedWrite{RefusedWishes, RefusedWishStatus, RefusedEvictions, RefusedEvictionStatus}

// addNative draws what a plan has of lifecycle.k8s.io. It has dice of its own, so that plans that
// have nothing of it are as they were.
func (p *Plan) addNative() {
	d := diceFor(p.Seed, "lifecycle")
	if p.Serves = d.chance(nativePercent); !p.Serves {
		return
	}
	for i := range p.Workloads {
		if d.chance(respondedPercent) {
			p.Workloads[i].Responders = d.responders()
		}
	}
	for i := range 1 + d.IntN(2) {
		w := Workload{
			Name: fmt.Sprintf("native-%d", i), Kind: Plain, Replicas: int32(1 + d.IntN(3)), MaxUnavailable: -1,
			Stateful: d.chance(50), Registered: p.Mode == ModeAlways || d.chance(50), Responders: d.responders(),
		}
		if d.chance(30) {
			w.MaxUnavailable = 1
		}
		if d.chance(40) {
			w.Kind = Intercepted
			for range 1 + d.IntN(2) {
				w.Interceptors = append(w.Interceptors, Behaviour{Habit: []Habit{Works, Works, Works, Crashes, Twice}[d.IntN(5)], Delay: d.upTo(maxDelay), Work: d.upTo(maxWork)})
			}
		}
		p.Workloads = append(p.Workloads, w)
	}
	p.Drains = append(p.Drains, d.wishes()...)
	p.addNativeRefusal(d)
}

// responders of the pods of a workload.
func (d dice) responders() []Responder {
	count, longest := 1+d.IntN(maxResponders), maxNativeWork
	if d.chance(crowdedPercent) {
		count, longest = v1alpha1.MaxNativeResponders, maxCrowdedWork
	}
	var responders []Responder
	stuck := false
	for range count {
		r := Responder{
			Behaviour: Behaviour{
				Habit: []Habit{Works, Works, Works, Works, Works, Silent, Hangs, Crashes, Crashes, Twice}[d.IntN(10)],
				Delay: d.upTo(min(longest, maxDelay)), Work: d.upTo(longest),
			},
			Domain:   []string{"example.com", "example.net"}[d.IntN(2)],
			Priority: []int32{v1alpha1.DefaultNativePriority, 10000, 10000, 20000}[d.IntN(4)],
		}
		if r.Habit == Silent || r.Habit == Hangs {
			if stuck || count > maxResponders {
				r.Habit = Works
			}
			stuck = true
		}
		responders = append(responders, r)
	}
	return responders
}

// wishes are the native requesters: at least one, and up to two for a node.
func (d dice) wishes() []Drain {
	var drains []Drain
	for node := range Nodes - 1 {
		for _, percent := range []int{60, 25} {
			if !d.chance(percent) && (node+1 < Nodes-1 || len(drains) > 0) {
				continue
			}
			drain := Drain{Kind: Lifecycle, Node: node, From: d.IntN(8), To: Steps, Restless: d.chance(50), Deletes: d.chance(40)}
			if d.chance(35) {
				drain.To = drain.From + 4 + d.IntN(8)
			}
			drains = append(drains, drain)
			if drain.To < Steps-4 && d.chance(60) {
				drains = append(drains, Drain{Kind: Lifecycle, Node: node, From: drain.To + 1, To: Steps, Restless: drain.Restless})
			}
		}
	}
	return drains
}

// addNativeRefusal has a policy engine refuse writes to lifecycle.k8s.io, if it refuses nothing
// else.
func (p *Plan) addNativeRefusal(d dice) {
	f := Fault{Kind: RefuseWrites, At: 1 + d.IntN(Steps-4), Lasts: minRefusalSteps + d.IntN(maxRefusalSteps-minRefusalSteps+1)}
	f.Refusal = Refusal{Write: nativeWrites[d.IntN(len(nativeWrites))], Reason: refusalReasons[d.IntN(len(refusalReasons))]}
	if d.chance(refusalPercent) && p.refusal() == nil {
		p.addFault(f)
	}
}

// native reports whether the write is one to lifecycle.k8s.io.
func (w RefusedWrite) native() bool { return slices.Contains(nativeWrites, w) }

// responderNames are the names of the responders of a workload, in the order of its plan.
func responderNames(w *Workload, namespace string) []string {
	var names []string
	for i, r := range w.Responders {
		names = append(names, fmt.Sprintf("%s.%s.chaos.%s/r%d", w.Name, namespace, r.Domain, i))
	}
	return names
}
