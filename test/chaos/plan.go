package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Step is the unit of a plan's time; Steps of them are the time in which things go
// wrong.
const (
	Step  = 500 * time.Millisecond
	Steps = 24
)

// Mode is how Drawbridge is installed. It decides what is promised while no replica
// can be reached.
type Mode string

// The modes.
const (
	// ModeFail is failurePolicy Fail with the guard: nothing is ever evicted past its
	// interceptors.
	ModeFail Mode = "Fail"
	// ModeNoGuard is failurePolicy Fail without the guard, with the same promise.
	ModeNoGuard Mode = "FailNoGuard"
	// ModeAlways is failurePolicy Ignore with registrations of guard Always: a pod
	// that carries the guard's label is never evicted past its interceptors.
	ModeAlways Mode = "IgnoreAlways"
	// ModeIgnore is failurePolicy Ignore with guard WhileEvacuating, the chart's
	// default, with the same promise; a first eviction during an outage passes.
	ModeIgnore Mode = "IgnoreWhileEvacuating"
)

// Ignores reports whether evictions pass a webhook that cannot be reached.
func (m Mode) Ignores() bool { return m == ModeAlways || m == ModeIgnore }

// Kind of a workload.
type Kind string

// The kinds of workloads.
const (
	// Plain is a Deployment nobody intercepts.
	Plain Kind = "plain"
	// Surging is a Deployment with surge.drawbridge.dev and a budget of none.
	Surging Kind = "surging"
	// Intercepted is a StatefulSet or Deployment with interceptors.
	Intercepted Kind = "intercepted"
	// Machines are a StatefulSet of pods with a virtual machine each, moved by an
	// EvacuationPolicy that holds them. The only interceptor is their platform.
	Machines Kind = "machines"
	// Zoned is the StatefulSet of one zone of the rollout group.
	Zoned Kind = "zoned"
	// Hooked is a StatefulSet whose pods have an EvacuationHook that runs a Job.
	Hooked Kind = "hooked"
	// Singleton is a StatefulSet behind a budget that can never let its pods go.
	Singleton Kind = "singleton"
)

// Habit is how an interceptor behaves.
type Habit string

// The habits.
const (
	// Works begins, works and completes.
	Works Habit = "works"
	// Silent never says anything.
	Silent Habit = "silent"
	// Hangs begins and is silent from then on.
	Hangs Habit = "hangs"
	// Crashes begins, dies, and does it all again as another process.
	Crashes Habit = "crashes"
	// Twice completes, and then reports another completion.
	Twice Habit = "completes-twice"
	// Future begins with a heartbeat one hour ahead, and hangs.
	Future Habit = "future-heartbeat"
	// Liar works, and before that completes in the name of the interceptor before it.
	Liar Habit = "liar"
	// OffClock works, by our SDK, with a clock that is wrong.
	OffClock Habit = "off-clock"
)

// Behaviour of one interceptor of a workload.
type Behaviour struct {
	Habit Habit
	// Delay is how long it takes to begin, Work how long it works, and for Crashes
	// how long it is away.
	Delay, Work time.Duration
	// Clock is the error of its clock.
	Clock time.Duration
	// Forbids: when it begins, it says that there is no way back.
	Forbids bool
}

// Workload is an application of a run.
type Workload struct {
	// Name is also its label.
	Name     string
	Kind     Kind
	Replicas int32
	// Stateful makes it a StatefulSet.
	Stateful bool
	// MaxUnavailable of its budget; -1 is no budget.
	MaxUnavailable int32
	// Registered interceptors have an EvictionInterceptor with a service account of
	// their own; others stand in the pods' annotation, and anybody with the
	// permission may report for them.
	Registered bool
	// Interceptors in their order.
	Interceptors []Behaviour
	// Tolerates: its pods run on any node, whatever its taints. Pinned: only on the node
	// of the number Node.
	Tolerates, Pinned bool
	Node              int
	// Zone of the rollout group; empty for all others.
	Zone string
	// Responders of its pods, which the control plane of the plan must serve.
	Responders []Responder
}

// budgeted reports whether an EvictionBudget covers its pods.
func (w *Workload) budgeted() bool { return w.Zone != "" || w.Kind == Singleton }

// DrainKind is who drains.
type DrainKind string

// The kinds of drainers.
const (
	// Kubectl is kubectl drain, begun again when it gives up.
	Kubectl DrainKind = "kubectl"
	// Loop evicts the pods of the node by name, again and again.
	Loop DrainKind = "loop"
	// Native creates requests by itself, and withdraws them in the end.
	Native DrainKind = "native"
	// Maintained is a NodeMaintenance, which is deleted in the end.
	Maintained DrainKind = "maintenance"
	// Lifecycle creates EvictionRequests of lifecycle.k8s.io, and withdraws or deletes them in the
	// end.
	Lifecycle DrainKind = "lifecycle.k8s.io"
)

var drainKinds = []DrainKind{Kubectl, Loop, Native, Maintained, Lifecycle}

// Drain is one who wants the pods of a node gone.
type Drain struct {
	Kind DrainKind
	// Node is the number of the node.
	Node int
	// From and To are the steps in which it goes on. When kubectl and the loop end
	// before the last step, the node is uncordoned, which a maintenance takes back.
	From, To int
	// Deadline is how many steps a native requester leaves the interceptors of each pod; 0
	// is no deadline. Hard: it does not wait at all.
	Deadline int
	Hard     bool
	// Restless: a requester of lifecycle.k8s.io withdraws, deletes and creates in the middle.
	// Deletes: in the end it deletes its requests, instead of withdrawing them.
	Restless, Deletes bool
	// Order is that of a maintenance.
	Order Order
}

// FaultKind is what goes wrong.
type FaultKind string

// The faults.
const (
	KillManager            FaultKind = "kill manager"
	PauseManager           FaultKind = "pause manager"
	StopManager            FaultKind = "stop manager"
	KillManagers           FaultKind = "kill all managers"
	SkewManager            FaultKind = "skew manager"
	KillAPIServer          FaultKind = "kill kube-apiserver"
	PauseAPIServer         FaultKind = "pause kube-apiserver"
	KillEtcd               FaultKind = "kill etcd"
	PauseEtcd              FaultKind = "pause etcd"
	KillControllerManager  FaultKind = "kill kube-controller-manager"
	PauseControllerManager FaultKind = "pause kube-controller-manager"
	SlowWebhook            FaultKind = "slow webhook"
	CutWebhook             FaultKind = "cut webhook"
	DropLease              FaultKind = "delete leader lease"
	StealLease             FaultKind = "steal leader lease"
	// RefuseWrites is a policy engine that refuses one kind of write of the managers.
	RefuseWrites FaultKind = "refuse writes"
)

// faultKinds are those that are drawn, those of the manager more often. KillManagers comes
// with troubles, and RefuseWrites by itself.
var faultKinds = []FaultKind{
	KillManager, KillManager, KillManager, PauseManager, PauseManager, PauseManager, StopManager, SkewManager, SkewManager,
	KillAPIServer, KillAPIServer, PauseAPIServer, KillEtcd, PauseEtcd,
	KillControllerManager, PauseControllerManager,
	SlowWebhook, SlowWebhook, CutWebhook, DropLease, StealLease,
}

// Fault is what goes wrong when.
type Fault struct {
	Kind FaultKind
	// Replica of the manager it is about.
	Replica int
	// At is the step in which it begins, and Lasts how many steps it lasts.
	At, Lasts int
	// Amount is the latency of the webhook, or the manager's error of the clock.
	Amount time.Duration
	// Refusal is what is refused.
	Refusal Refusal
}

// targets are what can only have one fault at a time.
func (f Fault) targets() []string {
	switch f.Kind {
	case KillManager, PauseManager, StopManager:
		return []string{fmt.Sprint("manager", f.Replica)}
	case KillManagers:
		return []string{"manager0", "manager1"}
	case SkewManager:
		return []string{fmt.Sprint("clock", f.Replica)}
	case KillAPIServer, PauseAPIServer:
		return []string{"kube-apiserver"}
	case KillEtcd, PauseEtcd:
		return []string{"etcd"}
	case KillControllerManager, PauseControllerManager:
		return []string{"kube-controller-manager"}
	case SlowWebhook, CutWebhook:
		return []string{"webhook"}
	case RefuseWrites:
		return []string{"policy engine"}
	default:
		return []string{"lease"}
	}
}

// meets reports whether two faults are about the same thing at a time.
func (f Fault) meets(other Fault) bool {
	return f.At <= other.At+other.Lasts && other.At <= f.At+f.Lasts &&
		slices.ContainsFunc(f.targets(), func(target string) bool { return slices.Contains(other.targets(), target) })
}

// Plan is all of a run that does not depend on how fast things go. It is a pure
// function of its seed.
type Plan struct {
	Seed      uint64
	Mode      Mode
	Workloads []Workload
	Drains    []Drain
	Faults    []Fault
	// Rollout is the rollout group, nil if there is none.
	Rollout *Rollout
	// Singletons are pods behind a budget that can never let them go, nil if there are none.
	Singletons *Singletons
	// Serves: the control plane serves lifecycle.k8s.io, and there are native requesters and
	// responders.
	Serves bool
	// Writers touch requests and pods all the time.
	Writers bool
	// Troubles are what others do.
	Troubles []Trouble
	// Finale: when everything was called off, a node is drained once more, with nothing
	// broken but the troubles that last.
	Finale bool
}

// Nodes are how many nodes a run has; the last one is never drained.
const Nodes = 3

// Limits of what is drawn.
const (
	maxSkew       = 2 * time.Second
	maxLatency    = 3500 * time.Millisecond
	maxWork       = 2500 * time.Millisecond
	maxDelay      = 600 * time.Millisecond
	maxWorkloads  = 4
	maxFaults     = 6
	maxFaultSteps = 6
)

// MakePlan draws the plan of a seed, with no other troubles than those, or with all.
func MakePlan(seed uint64, troubles ...[]TroubleKind) Plan {
	d := dice{rand.New(rand.NewPCG(seed, 0x647261776272))}
	p := Plan{Seed: seed, Mode: ModeFail, Writers: d.chance(60)}
	switch n := d.IntN(100); {
	case n >= 85:
		p.Mode = ModeIgnore
	case n >= 65:
		p.Mode = ModeAlways
	case n >= 50:
		p.Mode = ModeNoGuard
	}
	// The first is always intercepted and can move, or the run would show little.
	first := d.workload(0, Intercepted)
	first.Replicas += 2
	if first.MaxUnavailable == 0 {
		first.MaxUnavailable = 1
	}
	p.Workloads = append(p.Workloads, first)
	for i := 1; i < 2+d.IntN(maxWorkloads-1); i++ {
		p.Workloads = append(p.Workloads, d.workload(i, []Kind{Plain, Surging, Intercepted, Intercepted, Machines}[d.IntN(5)]))
	}
	if p.Mode == ModeAlways {
		for i := range p.Workloads {
			p.Workloads[i].Registered = true
		}
	}
	// Maintenances have dice of their own: they came later, and left all plans as they were.
	p.Drains = append(d.drains(), dice{rand.New(rand.NewPCG(seed, 0x6d61696e74))}.maintenances()...)
	dice{rand.New(rand.NewPCG(seed, 0x646561646c))}.deadlines(p.Drains)
	dice{rand.New(rand.NewPCG(seed, 0x68617264))}.hardAndForbidden(p.Drains, p.Workloads)
	for range 2 + d.IntN(maxFaults-1) {
		p.addFault(d.fault())
	}
	p.addRollout()
	p.addRefusal()
	p.addNative()
	p.addSingletons()
	p.addOrders()
	allowed := AllTroubles
	if len(troubles) > 0 {
		allowed = slices.Concat(troubles...)
	}
	p.addTroubles(allowed)
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return a.At - b.At })
	return p
}

// addFault leaves out what would meet another fault of the same target.
func (p *Plan) addFault(f Fault) {
	if slices.ContainsFunc(p.Faults, f.meets) {
		return
	}
	p.Faults = append(p.Faults, f)
}

// Skewed reports whether a manager's clock goes wrong.
func (p *Plan) Skewed() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == SkewManager })
}
