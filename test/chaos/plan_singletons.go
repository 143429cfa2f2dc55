package chaos

import (
	"fmt"
	"time"
)

// Singletons are StatefulSets behind one PodDisruptionBudget that can never let a pod go, and an
// EvictionBudget that consents that they are deleted. The workloads of the kind Singleton are these
// StatefulSets.
type Singletons struct {
	// ByScale: the PodDisruptionBudget says maxUnavailable 0, else minAvailable of all of them.
	ByScale bool
	// Windows: the EvictionBudget has one in every second minute.
	Windows bool
	// At is the step in which somebody has asked for all of them for long enough.
	At int
}

const (
	// singletonPercent is how likely a plan has singletons.
	singletonPercent = 25
	// consentAfter is spec.exhausted.after of their EvictionBudget, the shortest there is.
	consentAfter = time.Minute
	// windowLength is how long a window is open, and closed until the next one.
	windowLength = time.Minute
	// windowSchedule opens it in even minutes.
	windowSchedule = "*/2 * * * *"
)

// addSingletons draws them. It has dice of its own, so that plans that have none are as they were.
func (p *Plan) addSingletons() {
	d := diceFor(p.Seed, "exhausted budget")
	if !d.chance(singletonPercent) {
		return
	}
	p.Singletons = &Singletons{ByScale: d.chance(40), Windows: d.chance(50), At: 2 + d.IntN(Steps-10)}
	for i := range 1 + d.IntN(2) {
		w := Workload{Name: fmt.Sprintf("single-%d", i), Kind: Singleton, Replicas: int32(1 + d.IntN(2)), Stateful: true}
		if d.chance(40) {
			w.Registered = p.Mode == ModeAlways || d.chance(50)
			w.Interceptors = []Behaviour{{Habit: []Habit{Works, Works, Crashes}[d.IntN(3)], Delay: d.upTo(maxDelay), Work: d.upTo(maxWork)}}
		}
		p.Workloads = append(p.Workloads, w)
	}
}

// singletons is how many pods they have.
func (p *Plan) singletons() (n int32) {
	for i := range p.Workloads {
		if p.Workloads[i].Kind == Singleton {
			n += p.Workloads[i].Replicas
		}
	}
	return n
}

// consentTime is how much longer a drain may take because of the singletons: until they are deleted
// in spite of their budget, one after the other.
func (p *Plan) consentTime() time.Duration {
	if p.Singletons == nil {
		return 0
	}
	longest := consentAfter + time.Duration(p.singletons())*replacementTime
	if p.Singletons.Windows {
		longest += windowLength
	}
	return longest
}

// replacementTime is how long it may take until the place of a singleton is filled, that is recorded,
// and the next one is deleted.
const replacementTime = 40 * time.Second

// opens is the first time from then on at which they may be deleted.
func (s *Singletons) opens(from time.Time) time.Time {
	if s.Windows && !isOpen(from) {
		return from.Truncate(windowLength).Add(windowLength)
	}
	return from
}

// isOpen reports whether that is in a window of windowSchedule.
func isOpen(at time.Time) bool { return at.UTC().Minute()%2 == 0 }

// Order is the order in which a maintenance has the pods of a node leave.
type Order string

// The orders. The first workload is the one that can always move.
const (
	// AllAtOnce is no order.
	AllAtOnce Order = "all at once"
	// HurriedLast has the first workload go last, which waits for the others for waveTimeout.
	HurriedLast Order = "the first workload last, with a timeout"
	// PatientLast has it go last, and it waits for the others as long as it takes.
	PatientLast Order = "the first workload last"
	// PatientFirst has it go first, and the others wait for it as long as it takes.
	PatientFirst Order = "the first workload first"
)

// addOrders gives most maintenances an order, by dice of their own.
func (p *Plan) addOrders() {
	d := diceFor(p.Seed, "waves")
	for i := range p.Drains {
		if p.Drains[i].Kind == Maintained {
			p.Drains[i].Order = []Order{AllAtOnce, HurriedLast, PatientLast, PatientFirst}[d.IntN(4)]
		}
	}
}

// waits reports whether the pods of an application must wait for those of another one.
func (o Order) waits(app, earlier string) bool {
	switch o {
	case PatientLast:
		return app == firstWorkload && earlier != firstWorkload
	case PatientFirst:
		return app != firstWorkload && earlier == firstWorkload
	default:
		return false // Nobody waits, or a timeout may be over.
	}
}

// firstWorkload is the name of the workload that can always move.
const firstWorkload = "w0"
