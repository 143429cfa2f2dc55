package request

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

// nativeScope bounds an exploration.
type nativeScope struct {
	podOf
	// legacy and native are who wants the pod evicted in the beginning.
	legacy, native bool
	// How often requesters may come and go, somebody delete or edit an object, the manager be
	// killed, a cache fall behind, a requester not wait, our controllers be slow, the pod end
	// without us.
	changes, hands, kills, lags, hard, slow, ends uint8
}

// kinds of what is cached.
const (
	lagOurs = iota
	lagRequests
	lagEvictions
	lagPod
	lagKinds
)

// nativeWorld is a state: numbers of objects, and what our controllers remember.
type nativeWorld struct {
	Ours, OursCached id
	Reqs, ReqsCached [2]id
	Evs, EvsCached   [2]id
	Pod, PodCached   podPhase
	Frozen           seats
	Dirty, Joined    bool
	// Odd: somebody has interfered. Late: we were late, so that our silence counts.
	Odd, Late        bool
	Wake             timer
	Started, EndSeen age
	// Pending are the writes that the native controller has not made yet, Then when it comes
	// back after them.
	Pending id
	Then    timer
	// Failed: one of those before them was refused.
	Failed bool

	Changes, Hands, Kills, Lags, Hard, Slow, Ends uint8
}

func (a *nativeActors) start(s nativeScope) nativeWorld {
	w := nativeWorld{
		Pod: podRunning, Wake: never, Then: never, EndSeen: never, Started: 2,
		Changes: s.changes, Hands: s.hands, Kills: s.kills, Lags: s.lags, Hard: s.hard, Slow: s.slow, Ends: s.ends,
	}
	if s.legacy {
		w.Ours = a.ours.put(ourRequest("er-1", legacyName))
	}
	if s.native {
		w.Reqs[0] = a.requests.put(userRequest())
	}
	return a.see(w)
}

// see lets the caches that do not lag follow, and normalizes.
func (a *nativeActors) see(w nativeWorld) nativeWorld {
	before := w
	if a.pods.full {
		for slot, i := range w.Evs {
			w.Evs[slot] = a.declined(i)
		}
	}
	if !w.Frozen.has(lagOurs) {
		w.OursCached = w.Ours
	}
	if !w.Frozen.has(lagRequests) {
		w.ReqsCached = w.Reqs
	}
	if !w.Frozen.has(lagEvictions) {
		w.EvsCached = w.Evs
	}
	if !w.Frozen.has(lagPod) {
		w.PodCached = w.Pod
	}
	if before.OursCached != w.OursCached || before.ReqsCached != w.ReqsCached || before.EvsCached != w.EvsCached || before.PodCached != w.PodCached {
		w.Dirty = true
	}
	if w.Dirty {
		w.Wake = never
	}
	w.Started = min(w.Started, 2)
	if !w.Pod.ended() {
		w.EndSeen = never
	}
	return w
}

// nativeMover passes on what can happen in one world.
type nativeMover struct {
	*nativeActors
	from nativeWorld
	to   func(modelcheck.Move[nativeWorld])
}

func (a *nativeActors) moves(w nativeWorld, to func(modelcheck.Move[nativeWorld])) {
	m := nativeMover{nativeActors: a, from: w, to: to}
	busy := m.controllers()
	m.collect()
	m.lag()
	if a.quiet(w) {
		return // Nothing changes any more.
	}
	m.kill()
	m.responders()
	m.interceptors()
	m.requesters()
	m.hands()
	m.pod()
	m.time(busy)
}

// move is something that may happen, own something that happens by itself.
func (m nativeMover) move(label string, w nativeWorld) { m.pass(label, w, false, nil) }

func (m nativeMover) own(label string, w nativeWorld, wrong error) { m.pass(label, w, true, wrong) }

func (m nativeMover) pass(label string, w nativeWorld, own bool, wrong error) {
	if w = m.see(w); wrong == nil {
		wrong = m.wrongTurn(m.from, w)
	}
	m.to(modelcheck.Move[nativeWorld]{Label: label, To: w, Own: own, Wrong: wrong})
}

// viewOf is what the native controller sees.
func (w nativeWorld) view() nativeView {
	return nativeView{
		ours: w.OursCached, reqs: w.ReqsCached, evs: w.EvsCached, cached: w.PodCached, pod: w.Pod, started: w.Started, endSeen: w.EndSeen,
	}
}

// controllers let ours act; busy reports whether one has something to do.
func (m nativeMover) controllers() (busy bool) {
	w := m.from
	switch {
	case w.Pending != 0:
		busy = true
		m.write(w, "the native controller goes on")
	case w.Dirty || w.Wake == 0:
		busy = true
		m.decides(w)
	}
	if w := m.from; w.OursCached != 0 && w.OursCached == w.Ours {
		after := m.engine(engineView{ours: w.OursCached, cached: w.PodCached, pod: w.Pod, started: w.Started})
		if after != w.Ours {
			busy = true
			wrong := m.silenced(w.Ours, after, w)
			w.Ours = after
			m.own("our engine acts", w, wrong)
		}
	}
	m.evicts()
	return busy
}

// decides lets the native controller look, and make its first write.
func (m nativeMover) decides(w nativeWorld) {
	in := w.view()
	out := m.look(in)
	w.Dirty, w.Wake, w.EndSeen = false, never, out.endSeen
	if out.create != 0 {
		slot := m.slotFor(&w, out.create)
		if slot < 0 { // The cache does not have it yet.
			w.Wake = 1
			m.own("the native controller finds the Eviction there already", w, out.wrong)
			return
		}
		w = m.see(w)
		in.evs, in.hasCreated = w.EvsCached, true
		in.evs[slot] = w.Evs[slot]
		out = m.look(in)
		w.Dirty, w.Wake, w.EndSeen = false, never, out.endSeen
		w.Pending, w.Then = m.plan(out.ops), out.then
		m.own("the native controller creates an Eviction", w, out.wrong)
		return
	}
	wrong := out.wrong
	if wrong == nil && w.Frozen == 0 {
		wrong = m.settles(w)
	}
	w.Pending, w.Then = m.plan(out.ops), out.then
	if w.Pending == 0 {
		w.Wake, w.Then = w.Then, never
		m.own("the native controller waits", w, wrong)
		return
	}
	if wrong != nil {
		m.own("the native controller decides", w, wrong)
		return
	}
	m.write(w, "the native controller decides")
}

// slotFor puts a created Eviction in its place, -1 if the name is taken. Only two are kept: the
// older of two goes, and the other gets its name.
func (m nativeMover) slotFor(w *nativeWorld, created id) int8 {
	slot := slotOfEviction(m.evictions.get(created).Name)
	if slot < 2 && w.Evs[slot] != 0 {
		return -1
	}
	if slot == 2 || slot == 0 && w.Evs[1] != 0 {
		if w.Evs[1] == 0 {
			return -1
		}
		w.Evs[0], w.Evs[1] = m.renamed(w.Evs[1], 0), 0
		w.Frozen &^= seats(0).with(lagEvictions)
		slot = 1
	}
	w.Evs[slot] = m.renamed(created, slot)
	return slot
}

func (m nativeMover) renamed(of id, slot int8) id {
	e := m.evictions.get(of).DeepCopy()
	e.Name, e.UID = exploredEviction(int(slot)), types.UID(fmt.Sprintf("eviction-%d", slot))
	return m.evictions.put(e)
}

// write makes the next of the pending writes. One that is refused ends them.
func (m nativeMover) write(w nativeWorld, label string) {
	ops := m.plans[w.Pending]
	done := true
	var wrong error
	switch o := ops[0]; o.kind {
	case opRequest:
		done = (w.Reqs[o.slot] == o.before || !m.locksVersion && w.Reqs[o.slot] != 0) && (!o.status || !m.pods.mute)
		set(&w.Reqs[o.slot], o.after, done)
	case opEviction:
		done = w.Evs[o.slot] == o.before || !m.locksVersion && w.Evs[o.slot] != 0
		if done && w.Evs[o.slot] != o.before {
			wrong = acceptsEviction(m.evictions.get(w.Evs[o.slot]), m.evictions.get(o.after))
		}
		set(&w.Evs[o.slot], o.after, done)
	case opOurs:
		done = w.Ours == o.before
		set(&w.Ours, o.after, done)
	case opJoin:
		if w.Joined {
			w.Then = 1 // After a pause.
			label += " (no second attempt to join)"
			break
		}
		w.Joined = true
		w.Ours = m.joinedBy(o, w)
	case opWithdraw:
		w.Ours = m.left(w.Ours, v1alpha1.NativeInterceptor)
	}
	if !done && ops[0].loose {
		w.Failed = true
	} else if !done {
		w.Pending, w.Then, w.Wake, w.Failed = 0, never, 1, false
		m.own(label+": refused", w, nil)
		return
	}
	if wrong == nil {
		wrong = m.silencedResponder(m.from, w)
	}
	if done {
		label += fmt.Sprintf(" and writes %s", ops[0])
	} else {
		label += fmt.Sprintf(" although it is refused %s", ops[0])
	}
	if w.Pending = m.plan(ops[1:]); w.Pending == 0 {
		if w.Failed {
			w.Then = 1
		}
		w.Wake, w.Then, w.Failed = w.Then, never, false
	}
	m.own(label, w, wrong)
}

func set(place *id, to id, done bool) {
	if done {
		*place = to
	}
}

func (o op) String() string {
	return fmt.Sprintf("%s %d: %d -> %d", [...]string{"native request", "Eviction", "report of ours", "join", "withdraw"}[o.kind], o.slot, o.before, o.after)
}

// fresh numbers a UID that nothing refers to any more, except what is about to be collected.
func (m nativeMover) fresh(w nativeWorld) int {
	used := func(uid types.UID) bool {
		if w.Ours != 0 && m.ours.get(w.Ours).UID == uid || w.OursCached != 0 && m.ours.get(w.OursCached).UID == uid {
			return true
		}
		for _, i := range []id{w.Reqs[1], w.ReqsCached[1]} {
			if i != 0 && m.requests.get(i).OwnerReferences[0].UID == uid {
				return true
			}
		}
		return false
	}
	n := 1
	for used(freshUID(n)) {
		n++
	}
	return n
}
