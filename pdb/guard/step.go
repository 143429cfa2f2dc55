package guard

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Stage is the stage of a pod's eviction.
type Stage int

const (
	// StageNone says that no request runs for the pod.
	StageNone Stage = iota
	// StageEvacuating says that a request runs, and interceptors have their turns.
	StageEvacuating
	// StageImperative says that all interceptors had their turn and the pod is being
	// evicted.
	StageImperative
	// StageOver says that the pod was evicted, or that the request was refused because no
	// interceptor may ever run for the pod. Nothing would open a guard again.
	StageOver
)

func (s Stage) String() string {
	return [...]string{"None", "Evacuating", "Imperative", "Over"}[s]
}

// Interceptor is what the guard needs to know about an interceptor of a pod.
type Interceptor struct {
	// Guard says when the pod is protected. Empty means v1alpha1.GuardWhileEvacuating,
	// which applies to the names of an annotation.
	Guard v1alpha1.GuardPolicy
	// Evicting: it is active and terminates the pod itself.
	Evicting bool
}

// Input is everything that a decision about a pod depends on.
type Input struct {
	// Served: the webhook is called for evictions in the pod's namespace. Otherwise
	// nothing would open a guard.
	Served bool
	// Deleting: the pod is being deleted. Budgets no longer apply.
	Deleting bool
	// Terminal: the pod has Succeeded or Failed. Budgets no longer apply.
	Terminal bool
	// Unsupported: no request can evict the pod (DaemonSet, mirror and group pods),
	// so no interceptor ever runs for it.
	Unsupported bool
	// Unknown: the interceptors of the pod are not known for certain.
	Unknown bool

	// Interceptors of the pod: those of the running request's plan, and those who
	// would be in the plan of a new request.
	Interceptors []Interceptor
	// Request is the UID of the pod's request, empty if there is none. Only the limit of
	// writes depends on it.
	Request types.UID
	Stage   Stage
	// Spared: all interceptors said that there is nothing to do for the pod, so the
	// webhook allows a first call.
	Spared bool
	// Unsure: one of them is undecided. It may change its answer without an event.
	Unsure bool
	// Held: the guard stays closed even after all interceptors had their turn. Hold says
	// why.
	Held bool
	Hold string

	// OtherBudgets are the names of the budgets of others that select the pod,
	// sorted. They only need to be known if the decision without them is to close.
	OtherBudgets []string

	// Closed: the label is on the pod.
	Closed bool
	// Bound: the pod's controller selects by the label, so that changing it would orphan
	// the pod and create another one.
	Bound bool
}

// State is the wanted state of a pod's guard.
type State int

const (
	// StateNone says that the pod has no guard, because it has no interceptors, or no
	// guard could help.
	StateNone State = iota
	// StateOpen says that it may have one, but evictions may pass now.
	StateOpen
	// StateClosed says that no eviction may pass.
	StateClosed
	// StateHeld says that it would be open now, but is held closed.
	StateHeld
	// StateOtherBudget says that it would be closed now, but another budget selects the
	// pod.
	StateOtherBudget
)

func (s State) String() string {
	return [...]string{"None", "Open", "Closed", "Held", "OtherBudget"}[s]
}

// Closes reports whether the label belongs on the pod.
func (s State) Closes() bool { return s == StateClosed || s == StateHeld }

// Change is what to do about the label.
type Change int

const (
	// ChangeNothing changes nothing.
	ChangeNothing Change = iota
	// ChangeClose adds it.
	ChangeClose
	// ChangeOpen removes it.
	ChangeOpen
)

func (c Change) String() string { return [...]string{"Nothing", "Close", "Open"}[c] }

// Decision is the decision about a pod's guard.
type Decision struct {
	State  State
	Change Change
	// LookAgain: its inputs may change without a watched event.
	LookAgain bool
	// Left: the label stays as it is, because the pod's controller selects by it.
	Left bool
}

// Step decides about the guard of one pod. It is pure and total, and does not depend on
// history: labels are level-triggered.
func Step(in Input) Decision {
	if in.Deleting {
		return Decision{} // The label is harmless, and writing to a terminating pod is wasted.
	}
	d := Decision{State: in.state()}
	d.LookAgain = in.Unsure || d.State == StateHeld
	switch {
	case in.Unknown && !d.State.Closes():
		// A missing interceptor may want it closed.
	case d.State.Closes() && !in.Closed:
		d.Change = ChangeClose
	case !d.State.Closes() && in.Closed:
		d.Change = ChangeOpen
	}
	if d.Change != ChangeNothing && in.Bound && (d.Change == ChangeClose || !in.goes()) {
		d.Change, d.Left = ChangeNothing, true
	}
	return d
}

// goes reports whether the pod is about to be evicted, so that its controller will create
// another one anyway.
func (in *Input) goes() bool { return in.Stage == StageImperative || in.evicting() }

// state is the wanted state.
func (in *Input) state() State {
	if !in.Served || in.Terminal || in.Unsupported || len(in.Interceptors) == 0 {
		return StateNone
	}
	state := in.wanted()
	if state.Closes() && len(in.OtherBudgets) > 0 {
		return StateOtherBudget // Two budgets on one pod make the eviction API answer 500.
	}
	return state
}

// wanted is the state if there are no budgets of others.
func (in *Input) wanted() State {
	switch {
	case in.Stage == StageOver:
		return StateOpen
	case in.Stage == StageImperative, in.evicting():
		if in.Held {
			return StateHeld
		}
		return StateOpen
	case in.Held && in.Stage == StageEvacuating:
		return StateClosed
	}
	switch in.strictest() {
	case v1alpha1.GuardAlways:
		if in.Stage == StageNone && in.Spared {
			return StateOpen
		}
		return StateClosed
	case v1alpha1.GuardNever:
		return StateNone
	default:
		if in.Stage == StageEvacuating {
			return StateClosed
		}
		return StateOpen
	}
}

func (in *Input) evicting() bool {
	for _, i := range in.Interceptors {
		if i.Evicting {
			return true
		}
	}
	return false
}

// strictest is the policy that wins among several interceptors: Always, then
// WhileEvacuating, then Never.
func (in *Input) strictest() v1alpha1.GuardPolicy {
	strictest := v1alpha1.GuardNever
	for _, i := range in.Interceptors {
		switch i.Guard {
		case v1alpha1.GuardAlways:
			return v1alpha1.GuardAlways
		case v1alpha1.GuardNever:
		default:
			strictest = v1alpha1.GuardWhileEvacuating
		}
	}
	return strictest
}
