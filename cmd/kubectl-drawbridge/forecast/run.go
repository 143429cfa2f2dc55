package forecast

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
)

// kind of an event.
type kind int

const (
	begins kind = iota
	turnEnds
	tries
	gone
	replaced
	refilled
	counted
	decides
	ordered
	looks
)

type event struct {
	at   time.Duration
	seq  int
	kind kind
	// of is a pod, a PodDisruptionBudget, a refill, a group of budgets or a node.
	of int
}

type events []event

func (e *events) Len() int { return len(*e) }
func (e *events) Less(i, j int) bool {
	a, b := (*e)[i], (*e)[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (e *events) Swap(i, j int) { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }
func (e *events) Push(x any)    { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// luck is what a run has drawn for a pod. It is drawn before, in the order of the pods, so
// that one that waits longer changes nothing for the others.
type luck struct {
	turns             []time.Duration
	startup, stopping time.Duration
}

// fate of a pod in a run.
type fate struct {
	start, end time.Duration
	ended      bool
	turn       int
	evicted    bool
	// replacing: its replacement is made before, or has been.
	replacing bool
	waits     string
	// cut: a deadline has ended a turn.
	cut bool
}

// run is one simulation.
type run struct {
	*world
	now    time.Duration
	seq    int
	queue  events
	luck   []luck
	pods   []fate
	spare  []int
	never  []bool
	asking [][]int
	// surging is how many replacements are made, by limit; those that wait for it.
	surging  []int
	queueing [][]int
	budgets  [][]grant.Budget
	// index of a pod of a budget, by group, budget and UID.
	index   [][]map[types.UID]int
	waiting [][]int
	due     []time.Duration
	// left is how many pods of a node are to go; next the node that begins next.
	left []int
	next int
	// begun are the waves of the nodes that have begun last, inWaves how many of their pods are not
	// gone, by wave, and dueWaves when they look again.
	begun    []begun
	inWaves  [][]int32
	dueWaves []time.Duration
	// waiters have their turn of the order, by node; late are those for whom a pod has waited until
	// its timeout.
	waiters [][]waiter
	late    map[int][]string
	// held are pods that never go.
	held  map[int]bool
	work  int
	steps int
	// short says why the run was ended before all was done.
	short string
	// trace is told what happens. May be nil.
	trace func(at time.Duration, what kind, pod int)
}

const idle = time.Duration(-1)

func (w *world) newRun(seed, number uint64) *run {
	r := &run{world: w, pods: make([]fate, len(w.pods)), luck: make([]luck, len(w.pods))}
	random := rand.New(rand.NewPCG(seed, number)) //nolint:gosec // It is a simulation.
	for i := range w.pods {
		v := &w.pods[i]
		l := luck{stopping: w.stopping(v, random)}
		if v.owner >= 0 {
			l.startup = w.owners[v.owner].startups.draw(random, 0)
			if len(w.owners[v.owner].startups) == 0 {
				l.startup = 0
			}
		}
		for _, t := range v.turns {
			d := time.Duration(0)
			if s := w.history.turns[t.name]; len(s) > 0 {
				d = s.draw(random, t.elapsed) - t.elapsed
			}
			l.turns = append(l.turns, max(d, 0))
		}
		r.luck[i] = l
	}
	for i := range w.pdbs {
		r.spare, r.never = append(r.spare, w.pdbs[i].spare), append(r.never, w.pdbs[i].never)
	}
	r.asking, r.surging, r.queueing = make([][]int, len(w.pdbs)), make([]int, len(w.surges)), make([][]int, len(w.surges))
	r.waiting, r.due = make([][]int, len(w.groups)), make([]time.Duration, len(w.groups))
	for g := range w.groups {
		r.due[g] = idle
		r.budgets = append(r.budgets, cloneBudgets(w.groups[g].budgets))
		var index []map[types.UID]int
		for b := range r.budgets[g] {
			at := make(map[types.UID]int, len(r.budgets[g][b].Pods))
			for i := range r.budgets[g][b].Pods {
				at[r.budgets[g][b].Pods[i].UID] = i
			}
			r.work += len(at) / 8
			index = append(index, at)
		}
		r.index = append(r.index, index)
	}
	r.countWaves()
	r.waiters, r.late = make([][]waiter, len(w.drain)), map[int][]string{}
	for i := range w.refills {
		s := w.history.startup(w.refills[i].owner)
		age := max(w.in.Now.Sub(w.refills[i].pod.CreationTimestamp.Time), 0)
		r.push(max(s.draw(random, age)-age, 0)+refillDelay, refilled, i)
	}
	return r
}

// stopping is from the eviction until the pod is gone. It is never much longer than the
// grace period, which it is if nothing was measured.
func (w *world) stopping(v *victim, random *rand.Rand) time.Duration {
	grace := time.Duration(min(max(ptr.Deref(v.pod.Spec.TerminationGracePeriodSeconds, 30), 0), 7*24*3600)) * time.Second
	if w.lost[v.node] {
		return 0
	}
	if v.leaving {
		return max(v.pod.DeletionTimestamp.Sub(w.in.Now), 0)
	}
	s := w.history.termination(v.pod.Namespace)
	d := s.draw(random, -1)
	if len(s) == 0 {
		return grace
	}
	return min(d, grace+2*time.Second)
}
