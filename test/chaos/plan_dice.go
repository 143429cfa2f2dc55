package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// dice draws.
type dice struct{ *rand.Rand }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// upTo draws a duration of at most limit, in steps of 50 ms.
func (d dice) upTo(limit time.Duration) time.Duration {
	const grain = 50 * time.Millisecond
	return time.Duration(d.IntN(int(limit/grain)+1)) * grain
}

func (d dice) workload(i int, kind Kind) Workload {
	w := Workload{Name: fmt.Sprintf("w%d", i), Kind: kind, Replicas: int32(1 + d.IntN(4)), MaxUnavailable: -1}
	switch n := d.IntN(100); { // A budget of none blocks everything until it is called off.
	case n < 10:
		w.MaxUnavailable = 0
	case n < 50:
		w.MaxUnavailable = 1
	}
	switch kind {
	case Surging:
		w.MaxUnavailable = 0
	case Machines:
		w.Stateful, w.Registered = true, true
		w.Interceptors = []Behaviour{{Habit: []Habit{Works, Works, Hangs}[d.IntN(3)], Delay: d.upTo(maxDelay), Work: d.upTo(maxWork)}}
	case Intercepted:
		w.Stateful = d.chance(60)
		w.Registered = d.chance(60)
		stuck := 0
		for j := range 1 + d.IntN(3) {
			b := d.behaviour(w.Registered && j > 0)
			switch b.Habit {
			case Silent, Hangs, Future:
				// Each of them takes the whole deadline.
				if stuck++; stuck > 1 {
					b.Habit = Works
				}
			}
			w.Interceptors = append(w.Interceptors, b)
		}
	}
	return w
}

func (d dice) behaviour(mayLie bool) Behaviour {
	habits := []Habit{Works, Works, Works, Works, Silent, Hangs, Crashes, Twice, Twice, Future}
	if mayLie {
		habits = append(habits, Liar, Liar, Liar)
	}
	return Behaviour{Habit: habits[d.IntN(len(habits))], Delay: d.upTo(maxDelay), Work: d.upTo(maxWork)}
}

// drains of the first two nodes.
func (d dice) drains() []Drain {
	var drains []Drain
	for node := range Nodes - 1 {
		kinds := [][]DrainKind{{Kubectl}, {Kubectl}, {Loop}, {Kubectl, Loop}, {Kubectl, Native}, {Native}}[d.IntN(6)]
		for _, kind := range kinds {
			drain := Drain{Kind: kind, Node: node, From: d.IntN(6), To: Steps}
			if d.chance(35) {
				drain.To = drain.From + 4 + d.IntN(10)
			}
			drains = append(drains, drain)
			if drain.To < Steps-4 && d.chance(60) {
				drains = append(drains, Drain{Kind: kind, Node: node, From: drain.To + 1, To: Steps})
			}
		}
	}
	return drains
}

// deadlines gives half of the native requesters one.
func (d dice) deadlines(drains []Drain) {
	for i := range drains {
		if drains[i].Kind == Native && d.chance(50) {
			drains[i].Deadline = 1 + d.IntN(10)
		}
	}
}

// hardAndForbidden lets a fifth of the native requesters not wait, and a fifth of the
// interceptors forbid to cancel.
func (d dice) hardAndForbidden(drains []Drain, workloads []Workload) {
	for i := range drains {
		if drains[i].Kind == Native && d.chance(20) {
			drains[i].Deadline, drains[i].Hard = 0, true
		}
	}
	for _, w := range workloads {
		for i := range w.Interceptors {
			w.Interceptors[i].Forbids = w.Kind == Intercepted && d.chance(20)
		}
	}
}

// maintenances of the first two nodes, whoever else drains them.
func (d dice) maintenances() []Drain {
	var drains []Drain
	for node := range Nodes - 1 {
		if !d.chance(30) {
			continue
		}
		drain := Drain{Kind: Maintained, Node: node, From: d.IntN(10), To: Steps}
		if d.chance(40) {
			drain.To = drain.From + 3 + d.IntN(10)
		}
		drains = append(drains, drain)
		if d.chance(25) { // A node may have two, of which one ends first.
			drains = append(drains, Drain{Kind: Maintained, Node: node, From: d.IntN(Steps / 2), To: Steps})
		}
	}
	return drains
}

func (d dice) fault() Fault {
	f := Fault{Kind: faultKinds[d.IntN(len(faultKinds))], Replica: d.IntN(Replicas), At: 1 + d.IntN(Steps-4), Lasts: 1 + d.IntN(maxFaultSteps)}
	switch f.Kind {
	case SkewManager:
		f.Amount = d.upTo(2*maxSkew) - maxSkew
	case SlowWebhook:
		f.Amount = 100*time.Millisecond + d.upTo(maxLatency)
	}
	return f
}
