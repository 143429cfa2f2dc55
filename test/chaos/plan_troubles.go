package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// TroubleKind is what others do to Drawbridge, on purpose or by mistake. Nothing of it is
// an excuse for a broken promise.
type TroubleKind string

// The troubles that are there from the beginning to the end.
const (
	// FailingPolicy is an EvacuationPolicy of somebody else whose expressions fail on
	// every pod of the run.
	FailingPolicy TroubleKind = "failing policy"
	// MutatedBudget is a policy engine that adds a field to the guard's budget.
	MutatedBudget TroubleKind = "mutated guard budget"
	// WrongClock is an application whose interceptor uses our SDK, with a clock that
	// is more than the allowed skew off.
	WrongClock TroubleKind = "wrong clock of an interceptor"
	// Tolerating is an application whose pods tolerate everything, so that they come
	// back to a node that is being drained.
	Tolerating TroubleKind = "pods that tolerate everything"
	// Pinned is an application whose pods can only be on a node that is drained.
	Pinned TroubleKind = "pods pinned to a node"
)

// The troubles that come in the middle.
const (
	// ForeignBudget is a budget of a user whose selector is the guard's label. It stays.
	ForeignBudget TroubleKind = "budget on the guard's label"
	// GuardTemplate is a Deployment whose template has the guard's label.
	GuardTemplate TroubleKind = "guard's label in a template"
	// HeldRequests are requests that somebody deletes, and somebody's finalizer holds.
	HeldRequests TroubleKind = "foreign finalizer on requests"
	// ForgeOutcome says, with the permission to write the status and no other, that
	// requests have ended.
	ForgeOutcome TroubleKind = "forged final conditions"
	// ForgePlan writes, with the same permission, whose turn it is, or who was skipped.
	ForgePlan TroubleKind = "forged plan"
	// ForgeReport completes, with the role of interceptors or that permission, in the name
	// of another one.
	ForgeReport TroubleKind = "forged reports"
	// PostReview posts made-up reviews to the webhook's port.
	PostReview TroubleKind = "made-up reviews"
	// PadEviction evicts with a body of 1.2 MiB.
	PadEviction TroubleKind = "padded evictions"
)

// AllTroubles are all of them.
var AllTroubles = []TroubleKind{
	FailingPolicy, MutatedBudget, WrongClock, Tolerating, Pinned, ForeignBudget, GuardTemplate, HeldRequests,
	ForgeOutcome, ForgePlan, ForgeReport, PostReview, PadEviction,
}

// ParseTroubles reads kinds of troubles, separated by commas, or "all" or "none".
func ParseTroubles(text string) ([]TroubleKind, error) {
	switch text {
	case "all":
		return AllTroubles, nil
	case "none":
		return []TroubleKind{}, nil
	}
	var kinds []TroubleKind
	for name := range strings.SplitSeq(text, ",") {
		kind := TroubleKind(strings.TrimSpace(name))
		if !slices.Contains(AllTroubles, kind) {
			return nil, fmt.Errorf("%q is none of %q", kind, AllTroubles)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// inOutages are the attacks that are tried while no manager runs, too.
var inOutages = []TroubleKind{ForgeOutcome, ForgePlan, ForgeReport, PadEviction, ForeignBudget}

// lasting are the troubles that do not end before the run does.
var lasting = []TroubleKind{FailingPolicy, MutatedBudget, WrongClock, Tolerating, Pinned, ForeignBudget}

// Trouble is what somebody does when.
type Trouble struct {
	Kind TroubleKind
	// At is the step in which it begins and Lasts how many steps it lasts, if it does
	// not last for the whole run.
	At, Lasts int
	// Outage: all managers are killed for that long.
	Outage bool
	// Amount is the error of the clock.
	Amount time.Duration
}

func (t Trouble) String() string {
	text := string(t.Kind)
	if t.Lasts > 0 {
		text += fmt.Sprintf(", step %d, for %d", t.At, t.Lasts)
	}
	if t.Outage {
		text += ", no manager"
	}
	if t.Amount != 0 {
		text += fmt.Sprintf(", off by %s", t.Amount)
	}
	return text
}

// Has reports whether a plan has a trouble.
func (p *Plan) Has(kind TroubleKind) bool {
	return slices.ContainsFunc(p.Troubles, func(t Trouble) bool { return t.Kind == kind })
}

const (
	// troublePercent is how likely each of them is, and finalePercent how likely a
	// finale without any that would need one.
	troublePercent = 25
	finalePercent  = 30
	// minOff and maxOff are how far wrong clocks are off.
	minOff, maxOff = 12 * time.Second, 90 * time.Second
	// outageSteps is how long an outage for an attack lasts.
	outageSteps = 5
)

// addTroubles draws them. Each has dice of its own: when one more is allowed, all others
// stay as they are.
func (p *Plan) addTroubles(allowed []TroubleKind) {
	for _, kind := range AllTroubles {
		d := diceFor(p.Seed, string(kind))
		t := Trouble{Kind: kind}
		drawn := d.chance(troublePercent)
		if !slices.Contains(lasting, kind) || kind == ForeignBudget {
			t.At, t.Lasts = 2+d.IntN(Steps-10), 3+d.IntN(4)
		}
		outage := slices.Contains(inOutages, kind) && d.chance(60)
		if drawn && slices.Contains(allowed, kind) {
			p.addTrouble(t, outage, d)
		}
	}
	p.Finale = diceFor(p.Seed, "finale").chance(finalePercent) ||
		slices.ContainsFunc(p.Troubles, func(t Trouble) bool { return slices.Contains(lasting, t.Kind) })
}

func diceFor(seed uint64, what string) dice {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(what)) // It cannot fail.
	return dice{rand.New(rand.NewPCG(seed, hash.Sum64()))}
}

func (p *Plan) addTrouble(t Trouble, outage bool, d dice) {
	switch t.Kind {
	case WrongClock:
		t.Amount = minOff + d.upTo(maxOff-minOff)
		if d.chance(50) {
			t.Amount = -t.Amount
		}
		w := p.application("clock", 1+d.IntN(3), d)
		w.Registered = true
		w.Interceptors = []Behaviour{{Habit: OffClock, Work: d.upTo(maxWork), Clock: t.Amount}}
		p.Workloads = append(p.Workloads, w)
	case Tolerating, Pinned:
		name, replicas := "tolerant", 1+d.IntN(2)
		if t.Kind == Pinned {
			name, replicas = "pinned", 1
		}
		w := p.application(name, replicas, d)
		w.Stateful, w.Tolerates, w.Pinned, w.Node = true, true, t.Kind == Pinned, d.IntN(Nodes-1)
		w.Interceptors = []Behaviour{{Habit: Works, Delay: d.upTo(maxDelay), Work: d.upTo(maxWork)}}
		p.Workloads = append(p.Workloads, w)
	}
	if outage {
		t.Outage = p.addOutage(&t)
	}
	p.Troubles = append(p.Troubles, t)
}

// application is one more workload, without a budget.
func (p *Plan) application(name string, replicas int, d dice) Workload {
	return Workload{Name: name, Kind: Intercepted, Replicas: int32(replicas), MaxUnavailable: -1, Registered: p.Mode == ModeAlways || d.chance(50)}
}

// addOutage kills all managers during a trouble, which moves to where no other fault of
// theirs is. It reports whether there is such a place.
func (p *Plan) addOutage(t *Trouble) bool {
	for shift := range Steps - outageSteps - 2 {
		at := 1 + (t.At-1+shift)%(Steps-outageSteps-2)
		f := Fault{Kind: KillManagers, At: at, Lasts: outageSteps}
		before := len(p.Faults)
		if p.addFault(f); len(p.Faults) > before {
			t.At, t.Lasts = at+1, outageSteps-1
			return true
		}
	}
	return false
}
