package forecast

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/pace"
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
)

type event struct {
	at   time.Duration
	seq  int
	kind kind
	// of is a pod, a PodDisruptionBudget, a refill or a group of budgets.
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
	budgets  [][]pace.Budget
	// index of a pod of a budget, by group, budget and UID.
	index   [][]map[types.UID]int
	waiting [][]int
	due     []time.Duration
	// left is how many pods of a node are to go; next the node that begins next.
	left []int
	next int
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
	r.left = make([]int, len(w.drain))
	for i := range w.pods {
		r.left[w.pods[i].node]++
	}
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

func (r *run) push(at time.Duration, k kind, of int) {
	r.seq++
	heap.Push(&r.queue, event{at, r.seq, k, of})
}

// simulate runs until nothing happens any more.
func (r *run) simulate() {
	most := r.in.Settings.MaxParallel
	if most <= 0 || most > len(r.drain) {
		most = len(r.drain)
	}
	r.startNodes(most, beginDelay)
	for n := 0; len(r.queue) > 0; n++ {
		e := heap.Pop(&r.queue).(event)
		switch {
		case e.at > horizon:
			r.short = "it is not done within 31 days"
			return
		case n >= maxEvents, r.steps >= maxSteps:
			r.short = "the simulation was ended: too much happens in it"
			return
		}
		r.now = e.at
		r.work++
		r.handle(e)
	}
}

// startNodes begins with that many more nodes. Those without pods are done at once.
func (r *run) startNodes(n int, after time.Duration) {
	for ; n > 0 && r.next < len(r.drain); r.next++ {
		if r.left[r.next] == 0 {
			continue
		}
		n--
		first, _ := slices.BinarySearchFunc(r.world.pods, r.next, func(v victim, node int) int { return v.node - node })
		for i := first; i < len(r.world.pods) && r.world.pods[i].node == r.next; i++ {
			at := after
			if v := &r.world.pods[i]; !v.asked && len(v.turns) == 0 && !v.leaving {
				at += r.wait
			} else if v.asked || v.leaving {
				at = 0
			}
			r.push(r.now+at, begins, i)
		}
	}
}

func (r *run) handle(e event) {
	switch e.kind {
	case begins:
		r.begin(e.of)
	case turnEnds:
		r.endTurn(e.of)
	case tries:
		r.try(e.of)
	case gone:
		r.goneNow(e.of)
	case replaced:
		r.readyNow(e.of)
	case refilled:
		for _, p := range r.refills[e.of].pdbs {
			r.spare[p]++
			r.wake(p)
		}
	case counted:
		r.wake(e.of)
	case decides:
		if r.due[e.of] == e.at {
			r.due[e.of] = idle
			r.decide(e.of)
		}
	}
}

func (r *run) tell(what kind, pod int) {
	if r.trace != nil {
		r.trace(r.now, what, pod)
	}
}

func (r *run) begin(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	f.start = r.now
	if r.held[i] {
		return
	}
	if v.leaving {
		r.leave(i)
		return
	}
	r.nextTurn(i)
}

// nextTurn begins the turn that the pod has now.
func (r *run) nextTurn(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	if f.turn >= len(v.turns) {
		r.push(r.now+stepDelay, tries, i)
		return
	}
	switch name := v.turns[f.turn].name; {
	case name == v1alpha1.BudgetInterceptor && v.group >= 0:
		r.waiting[v.group] = append(r.waiting[v.group], i)
		f.waits = "EvictionBudget"
		r.later(v.group, r.now+stepDelay)
	case name == v1alpha1.BudgetInterceptor:
		r.push(r.now+stepDelay, turnEnds, i)
	case name == surgeInterceptor && v.owner >= 0:
		s := r.owners[v.owner].surge
		r.queueing[s] = append(r.queueing[s], i)
		f.waits = surgeInterceptor
		r.surge(s)
	default:
		r.push(r.now+r.luck[i].turns[f.turn], turnEnds, i)
	}
}

func (r *run) endTurn(i int) {
	r.pods[i].turn++
	r.pods[i].waits = ""
	r.nextTurn(i)
}

// surge begins to replace as many pods as the limit allows.
func (r *run) surge(s int) {
	for len(r.queueing[s]) > 0 && r.surging[s] < r.surges[s] {
		i := r.queueing[s][0]
		r.queueing[s] = r.queueing[s][1:]
		r.surging[s]++
		if r.world.pods[i].target == nil {
			r.push(r.now+surgeGivesUp, turnEnds, i) // It goes without a replacement.
			continue
		}
		r.pods[i].replacing = true
		r.replace(i)
	}
}

// replace creates the pod's replacement.
func (r *run) replace(i int) {
	v := &r.world.pods[i]
	if v.owner < 0 {
		return
	}
	for _, b := range v.budgets {
		group, placed := groupName(r.groups[v.group].from[b], v)
		p := &r.budgets[v.group][b]
		r.index[v.group][b][replacement(i)] = len(p.Pods)
		p.Pods = append(p.Pods, pace.Pod{UID: replacement(i), Owner: r.owners[v.owner].uid, Created: r.in.Now.Add(r.now), Group: group, Placed: placed})
	}
	if v.target != nil {
		r.push(r.now+r.luck[i].startup+stepDelay, replaced, i)
	}
}

// replacement is the UID of a pod in another one's place. No pod has such a one.
func replacement(i int) types.UID { return types.UID("/" + strconv.Itoa(i)) }

// readyNow is when the replacement is ready.
func (r *run) readyNow(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	r.tell(replaced, i)
	for _, p := range v.pdbs {
		r.spare[p]++
		r.push(r.now+refillDelay, counted, p)
	}
	for _, b := range v.budgets {
		p := &r.budgets[v.group][b].Pods[r.index[v.group][b][replacement(i)]]
		p.Ready, p.ReadySince = true, r.in.Now.Add(r.now)
	}
	if v.group >= 0 {
		r.later(v.group, r.now+stepDelay)
	}
	if f.replacing && !f.evicted {
		r.push(r.now+stepDelay, turnEnds, i)
	}
}

// try calls the eviction API, and waits for the budget if that refuses.
func (r *run) try(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	switch {
	case len(v.pdbs) > 1:
		f.waits = "PodDisruptionBudgets"
	case len(v.pdbs) == 0 || r.allows(v.pdbs[0], v):
		r.evict(i)
	default:
		f.waits = "PodDisruptionBudget"
		r.asking[v.pdbs[0]] = append(r.asking[v.pdbs[0]], i)
	}
}

func (r *run) allows(p int, v *victim) bool {
	switch {
	case !v.ready && (r.world.pdbs[p].always || r.spare[p] >= 0 && !r.never[p]):
		return true
	default:
		return r.spare[p] > 0 && !r.never[p]
	}
}

// wake tries those again that wait for the budget, the oldest request first.
func (r *run) wake(p int) {
	waiting := r.asking[p]
	if len(waiting) == 0 {
		return
	}
	if r.spare[p] <= 0 && !slices.ContainsFunc(waiting, func(i int) bool { return r.allows(p, &r.world.pods[i]) }) {
		return
	}
	r.asking[p] = nil
	for n, i := range waiting {
		if r.spare[p] <= 0 && r.world.pods[i].ready {
			r.asking[p] = append(r.asking[p], waiting[n])
			continue
		}
		r.try(i)
	}
	r.work += len(waiting)
}

// evict deletes the pod.
func (r *run) evict(i int) {
	v := &r.world.pods[i]
	for _, p := range v.pdbs {
		if v.ready {
			r.spare[p]--
		}
	}
	r.tell(tries, i)
	r.leave(i)
}

// leave is when the pod begins to leave.
func (r *run) leave(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	f.evicted, f.waits = true, ""
	for _, b := range v.budgets {
		budget := &r.budgets[v.group][b]
		p := &budget.Pods[r.index[v.group][b][v.pod.UID]]
		p.Leaving, p.LeavingSince = true, r.in.Now.Add(r.now)
		budget.LastLeft = laterOf(budget.LastLeft, p.LeavingSince)
	}
	if v.owner >= 0 && !r.owners[v.owner].late && !f.replacing && !v.leaving {
		r.replace(i)
	}
	r.push(r.now+r.luck[i].stopping, gone, i)
	if v.group >= 0 {
		r.later(v.group, r.now+stepDelay)
	}
}

// goneNow is when the pod's object is gone.
func (r *run) goneNow(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	f.end, f.ended = r.now, true
	r.tell(gone, i)
	for _, b := range v.budgets {
		r.remove(v.group, b, v.pod.UID)
	}
	if v.owner >= 0 && r.owners[v.owner].late && !f.replacing && !v.leaving {
		r.replace(i)
	}
	if v.group >= 0 {
		r.later(v.group, r.now+stepDelay)
	}
	if v.owner >= 0 && slices.ContainsFunc(v.turns, func(t turn) bool { return t.name == surgeInterceptor }) && !v.leaving {
		s := r.owners[v.owner].surge
		r.surging[s] = max(r.surging[s]-1, 0)
		r.surge(s)
	}
	if r.left[v.node]--; r.left[v.node] == 0 {
		r.startNodes(1, stepDelay)
	}
}

func (r *run) remove(group, b int, uid types.UID) {
	all, at := r.budgets[group][b].Pods, r.index[group][b]
	i, last := at[uid], len(all)-1
	all[i] = all[last]
	at[all[i].UID] = i
	delete(at, uid)
	r.budgets[group][b].Pods = all[:last]
}

// later lets a group of budgets decide then, if it does not do so before.
func (r *run) later(group int, at time.Duration) {
	if len(r.waiting[group]) == 0 || r.due[group] != idle && r.due[group] <= at {
		return
	}
	r.due[group] = at
	r.push(at, decides, group)
}

// decide is a step of the manager's own rules.
func (r *run) decide(group int) {
	if len(r.waiting[group]) == 0 {
		return
	}
	in := pace.Input{Budgets: r.budgets[group], Now: r.in.Now.Add(r.now)}
	byUID := make(map[types.UID]int, len(r.waiting[group]))
	for _, i := range r.waiting[group] {
		uid := r.world.pods[i].pod.UID
		byUID[uid] = i
		created := r.in.Now.Add(r.pods[i].start).Truncate(time.Second)
		in.Requests = append(in.Requests, pace.Request{UID: uid, Pod: uid, Created: created, Name: r.world.pods[i].key})
	}
	d := pace.Step(in)
	r.steps++
	for b := range d.States {
		budget := &r.budgets[group][b]
		budget.Grants, budget.Gone, budget.LastGrant = d.States[b].Grants, d.States[b].Gone, d.States[b].LastGrant
		r.work += len(budget.Pods)
	}
	r.work += len(in.Requests)
	for _, w := range d.Waiting {
		r.pods[byUID[w.Request]].waits = w.Message
	}
	for _, g := range d.Granted {
		i := byUID[g.Request]
		r.tell(decides, i)
		r.push(r.now+stepDelay, turnEnds, i)
		delete(byUID, g.Request)
	}
	r.waiting[group] = slices.DeleteFunc(r.waiting[group], func(i int) bool {
		_, waits := byUID[r.world.pods[i].pod.UID]
		return !waits
	})
	if !d.WakeAt.IsZero() {
		r.later(group, max(d.WakeAt.Sub(r.in.Now), r.now+time.Millisecond))
	}
}

// drop forgets all but the fates.
func (r *run) drop() {
	r.queue, r.luck, r.budgets, r.index, r.asking, r.waiting, r.queueing = nil, nil, nil, nil, nil, nil, nil
}
