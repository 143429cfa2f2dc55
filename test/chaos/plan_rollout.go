package chaos

import "time"

// Rollout is a group of StatefulSets, one for each zone, behind one EvictionBudget: any
// number of pods of a zone may be away, and one zone at a time. The workloads of the kind
// Zoned are these StatefulSets.
type Rollout struct {
	// Settle is how long a pod must be ready to be available again.
	Settle time.Duration
	// Losses are pods that somebody deletes.
	Losses []Loss
}

// Loss is a pod of a zone that is deleted without being evicted.
type Loss struct {
	// At is the step, and Zone the zone.
	At   int
	Zone string
}

// zoneNames are the zones of a rollout group.
var zoneNames = []string{"a", "b", "c"}

const (
	// rolloutPercent is how likely a plan has a rollout group.
	rolloutPercent = 60
	maxSettle      = time.Second
	maxLosses      = 2
)

// addRollout draws a rollout group. It has dice of its own, so that plans that have none
// are as they were.
func (p *Plan) addRollout() {
	d := diceFor(p.Seed, "rollout group")
	if !d.chance(rolloutPercent) {
		return
	}
	p.Rollout = &Rollout{Settle: d.upTo(maxSettle)}
	replicas, intercepted, registered := int32(1+d.IntN(3)), d.chance(40), p.Mode == ModeAlways || d.chance(50)
	for _, zone := range zoneNames {
		w := Workload{Name: "zone-" + zone, Kind: Zoned, Zone: zone, Replicas: replicas, Stateful: true, MaxUnavailable: -1}
		if intercepted {
			w.Registered = registered
			w.Interceptors = []Behaviour{{Habit: Works, Delay: d.upTo(maxDelay), Work: d.upTo(maxWork)}}
		}
		p.Workloads = append(p.Workloads, w)
	}
	for range d.IntN(maxLosses + 1) {
		p.Rollout.Losses = append(p.Rollout.Losses, Loss{At: 1 + d.IntN(Steps-2), Zone: zoneNames[d.IntN(len(zoneNames))]})
	}
}
