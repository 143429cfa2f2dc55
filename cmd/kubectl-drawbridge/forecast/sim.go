package forecast

import (
	"container/heap"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
)

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
			r.short = "the simulation was stopped: it has too many steps"
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
		r.startPods(r.next, -1, after)
		if len(r.waves) > 0 {
			r.push(r.now+after, ordered, r.next)
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
	case ordered:
		r.order(e.of)
	case looks:
		r.look(e.of)
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
	case name == v1alpha1.OrderInterceptor:
		r.await(i)
	case name == surgeInterceptor && v.owner >= 0:
		s := r.owners[v.owner].surge
		r.queueing[s] = append(r.queueing[s], i)
		f.waits = surgeInterceptor
		r.surge(s)
	default:
		end := r.now + r.luck[i].turns[f.turn]
		if v.cutOff != nil && end > *v.cutOff && !v1alpha1.IsUnhurried(name) {
			end, f.cut = max(r.now, *v.cutOff), true
		}
		r.push(end, turnEnds, i)
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
		p.Pods = append(p.Pods, grant.Pod{UID: replacement(i), Owner: r.owners[v.owner].uid, Created: r.in.Now.Add(r.now), Group: group, Placed: placed})
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
		budget.LastLeft = laterOf(budget.LastLeft, r.leftAt())
	}
	if v.owner >= 0 && !r.owners[v.owner].late && !f.replacing && !v.leaving {
		r.replace(i)
	}
	r.push(r.now+r.luck[i].stopping, gone, i)
	if v.group >= 0 {
		r.later(v.group, r.now+stepDelay)
	}
}

// leftAt is now as the manager knows it from a deletionTimestamp: up to a second later.
func (r *run) leftAt() time.Time { return r.in.Now.Add(r.now).Truncate(time.Second).Add(time.Second) }

// goneNow is when the pod's object is gone.
func (r *run) goneNow(i int) {
	v, f := &r.world.pods[i], &r.pods[i]
	f.end, f.ended = r.now, true
	r.tell(gone, i)
	for _, b := range v.budgets {
		r.remove(v.group, b, v.pod.UID)
	}
	if v.owner >= 0 && r.owners[v.owner].late && !f.replacing && !v.leaving && !r.lost[v.node] {
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
	r.tellWaiters(i)
	if r.inWaves[v.node][v.wave]--; len(r.waves) > 0 {
		r.push(r.now+stepDelay, ordered, v.node)
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
	in := grant.Input{Budgets: r.budgets[group], Now: r.in.Now.Add(r.now)}
	byUID := make(map[types.UID]int, len(r.waiting[group]))
	for _, i := range r.waiting[group] {
		uid := r.world.pods[i].pod.UID
		byUID[uid] = i
		created := r.in.Now.Add(r.pods[i].start).Truncate(time.Second)
		in.Requests = append(in.Requests, grant.Request{UID: uid, Pod: uid, Created: created, Name: r.world.pods[i].key})
	}
	d := grant.Step(in)
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
	r.queue, r.luck, r.budgets, r.index, r.asking, r.waiting, r.queueing, r.waiters = nil, nil, nil, nil, nil, nil, nil, nil
}
