package request

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

var (
	errTwoActive   = errors.New("two are active")
	errOrder       = errors.New("a turn came out of order")
	errFinal       = errors.New("what is final has changed")
	errOutcome     = errors.New("the outcome is not true")
	errTooSoon     = errors.New("the pod was evicted before all interceptors were processed")
	errNotWanted   = errors.New("the evictor set out to evict a pod that nobody wants gone any more")
	errWrongTarget = errors.New("another pod was evicted")
)

// scope bounds an exploration.
type scope struct {
	// custom is the number of interceptors of the pod.
	custom int
	// How often a controller may crash, the clock go back, requesters come and go,
	// an eviction fail, an interceptor lie, a deadline be set, moved or taken away, an
	// interceptor forbid that the request is canceled.
	crashes, back, changes, refusals, lies, deadlines, forbids uint8
}

func (s scope) start() world {
	none := record{Wanted: 1, Gen: 1, Activated: never, Due: never, Until: never}
	for i := range none.Items {
		none.Items[i].Beat = never
	}
	stored := none
	stored.Made = true
	w := world{
		Stored: stored, Cached: none, Pod: podRunning, PodCached: podUnseen,
		Crashes: s.crashes, Back: s.back, Changes: s.changes, Refusals: s.refusals, Lies: s.lies, Deadlines: s.deadlines, Forbids: s.forbids,
	}
	w.restart()
	w.Engine.Dirty, w.Evictor.Dirty = false, false // There is nothing to look at yet.
	return w
}

// restart is the memory of a process that has just begun.
func (w *world) restart() {
	w.Engine = engine{Dirty: true, Wake: never, EndSeen: never, SeenOf: -1, SeenBeat: never, SeenAt: never}
	w.Evictor = evictorState{Dirty: true, Wake: never, Last: lastTry{At: never, Since: never}}
}

// mover passes on what can happen in one world.
type mover struct {
	*actors
	from world
	to   func(modelcheck.Move[world])
}

func (a *actors) moves(w world, to func(modelcheck.Move[world])) {
	m := mover{actors: a, from: w, to: func(move modelcheck.Move[world]) {
		move.To = move.To.normal()
		to(move)
	}}
	m.informers()
	if w.quiet() {
		m.requesters()
		return // Time and the rest change nothing.
	}
	m.engine()
	m.evictor()
	m.crashes()
	m.people()
	m.pod()
	m.own("a tick passes", w.older(1), nil)
	if w.Back > 0 {
		back := w.older(-1)
		back.Back--
		m.move("the clock is set back", back)
	}
}

// store puts a new version in place of the stored one. Whoever decided on the old
// one will meet a conflict.
func (m mover) store(w *world, r record) {
	if r == w.Stored {
		return // The API server stores nothing, either.
	}
	w.Stored = r
	w.Evictor.Fresh = false
	if !m.locksVersion {
		return
	}
	if w.Engine.Writes {
		w.Engine.noWrite()
		w.Engine.Wake = ticksFor(conflictRetry)
	}
	w.GhostWrites, w.Ghost = false, record{}
}

// own is something that happens by itself.
func (m mover) own(label string, w world, wrong error) {
	if wrong == nil {
		wrong = m.stored(w)
	}
	m.to(modelcheck.Move[world]{Label: label, To: w, Own: true, Wrong: wrong})
}

// move is something that may happen or not.
func (m mover) move(label string, w world) {
	m.to(modelcheck.Move[world]{Label: label, To: w, Wrong: m.stored(w)})
}

func (m mover) informers() {
	if w := m.from; w.Cached != w.Stored {
		turn := m.isTurn(w.Cached) || m.isTurn(w.Stored)
		w.Cached = w.Stored
		w.Engine.Dirty, w.Evictor.Dirty = true, w.Evictor.Dirty || turn
		m.own("the informer shows the request", w, nil)
	}
	if w := m.from; w.PodCached != w.Pod {
		// Both mappings find the request in the cache or do nothing.
		told := m.tellsPod(w.PodCached, w.Pod)
		w.Engine.Dirty = w.Engine.Dirty || w.Cached.Made && told
		w.Evictor.Dirty = w.Evictor.Dirty || m.isTurn(w.Cached)
		w.PodCached = w.Pod
		m.own("the informer shows the pod", w, nil)
	}
}

// engine lets the request controller look, and then write.
func (m mover) engine() {
	w := m.from
	e := &w.Engine
	switch {
	case e.Writes && e.LabelsFirst:
		w.Stored.Labeled, e.LabelsFirst = true, false // Our own write, so ours goes on.
		w.GhostWrites, w.Ghost, w.Evictor.Fresh = false, record{}, false
		if e.Write == w.Stored {
			e.Wake = e.Then
			e.noWrite()
		}
		m.own("the controller writes the labels", w, nil)
	case e.Writes:
		written, then := e.Write, e.Then
		e.noWrite()
		m.store(&w, written)
		e.Wake = then
		m.own("the controller writes the status", w, nil)
	case w.Cached.Made && (e.Dirty || e.Wake == 0):
		out := m.look(lookInput{
			view: w.Cached, cached: w.PodCached, pod: w.Pod, started: e.Started,
			sight: sight{EndSeen: e.EndSeen, SeenOf: e.SeenOf, SeenBeat: e.SeenBeat, SeenAt: e.SeenAt},
		})
		e.Dirty, e.Wake = false, never
		e.EndSeen, e.SeenOf, e.SeenBeat, e.SeenAt = out.sight.EndSeen, out.sight.SeenOf, out.sight.SeenBeat, out.sight.SeenAt
		switch {
		case out.write == w.Cached:
			e.Wake = out.then
		case w.Cached != w.Stored && m.locksVersion:
			e.Wake = ticksFor(conflictRetry)
		default:
			e.Writes, e.Write, e.Then = true, out.write, out.then
			e.LabelsFirst = out.write.Labeled != w.Stored.Labeled
		}
		m.own("the controller decides", w, out.wrong)
	}
}

// evictor lets the evictor look, and then call.
func (m mover) evictor() {
	w := m.from
	e := &w.Evictor
	switch {
	case e.Armed:
		m.calls()
	case e.Dirty || e.Wake == 0:
		e.Dirty, e.Wake = false, never
		if !m.isTurn(w.Cached) {
			e.Last, e.Woken = lastTry{At: never, Since: never}, false
			m.own("the evictor sees that it is not its turn", w, nil)
			return
		}
		d := m.try(tryOf(&w, w.Cached))
		if d.action == evictor.Call {
			live := w.Stored
			if !m.looksLive {
				live = w.Cached
			}
			if !m.isTurn(live) {
				e.Last, e.Woken = lastTry{At: never, Since: never}, false
				m.own("the evictor sees live that it is not its turn any more", w, nil)
				return
			}
			e.Armed, e.Fresh = true, live == w.Stored
			var wrong error
			if w.Stored.unwanted() || w.Stored.End != running {
				wrong = errNotWanted
			}
			m.own("the evictor sets out to evict", w, wrong)
			return
		}
		m.report(&w, d, w.Cached == w.Stored)
		m.own("the evictor waits", w, nil)
	}
}

// report stores what the evictor has to say.
func (m mover) report(w *world, d tryResult, current bool) {
	w.Evictor.Wake = d.wake
	if !d.report {
		return
	}
	if !current {
		w.Evictor.Wake = min(d.wake, ticksFor(evictor.ConflictRetry))
		return
	}
	next := w.Stored
	next.Items[next.Plan-1].Beat, next.Retries, next.Text = d.beat, d.retries, d.text
	m.store(w, next)
}

// calls are the ways a call of the eviction subresource may end.
func (m mover) calls() {
	answers := []struct {
		label  string
		result wording
		lands  bool // The server carries it out.
		spends bool
	}{
		{label: "the eviction is accepted", lands: true},
		{label: "the eviction is refused by a budget", result: textBudget, spends: true},
		{label: "the eviction is accepted, but nobody hears it", result: textDeadline, lands: true, spends: true},
		{label: "the eviction times out", result: textDeadline, spends: true},
	}
	for _, answer := range answers {
		w := m.from
		if answer.spends {
			if w.Refusals == 0 {
				continue
			}
			w.Refusals--
		}
		var wrong error
		if answer.lands {
			wrong = m.evict(&w)
		}
		e := &w.Evictor
		fresh := e.Fresh
		e.Armed, e.Fresh, e.Woken = false, false, false
		last := e.Last.memory()
		last.At, last.Result = exploreEpoch, lastTry{At: 0, Text: answer.result}.memory().Result
		if last.Result.Failed() {
			last.Fail(int32(w.Stored.Retries))
		}
		e.Last = lastTry{At: 0, Since: ageOf(last.Since), Text: answer.result, Retries: uint8(last.Retries)}
		m.report(&w, m.try(tryOf(&w, w.Stored)), fresh)
		m.to(modelcheck.Move[world]{Label: answer.label, To: w, Own: !answer.spends, Wrong: errors.Join(wrong, m.stored(w))})
	}
}

// evict is what the API server does with an eviction that it accepts.
func (m mover) evict(w *world) error {
	switch {
	case w.Pod == podReplaced && !m.namesUID:
		return errWrongTarget
	case w.Pod == podTerminal:
		w.Pod = podGone
	case w.Pod == podRunning:
		w.Pod = podDeleting
		for i := range m.custom {
			if int(w.Stored.Plan) != m.custom+1 || !w.Stored.Processed.has(i) {
				return fmt.Errorf("%w: not %d", errTooSoon, i)
			}
		}
	}
	return nil
}

// crashes end the process. What it has sent may still arrive, which is also what a
// leader does that has lost its lease without noticing.
func (m mover) crashes() {
	if w := m.from; w.Crashes > 0 {
		w.Crashes--
		w.restart()
		m.move("the manager crashes", w)

		if e := m.from.Engine; e.Writes || m.from.Evictor.Armed {
			if e.Writes {
				w.GhostWrites, w.Ghost = true, e.Write
				if e.LabelsFirst {
					w.Ghost = w.Stored
					w.Ghost.Labeled = true
				}
			}
			w.GhostCall = w.GhostCall || m.from.Evictor.Armed
			m.move("the manager crashes with a call on its way", w)
		}
	}
	if w := m.from; w.GhostWrites {
		ghost := w.Ghost
		m.store(&w, ghost)
		w.GhostWrites, w.Ghost = false, record{}
		m.move("the write of the crashed manager arrives", w)
	}
	if w := m.from; w.GhostCall {
		w.GhostCall = false
		wrong := m.evict(&w)
		m.to(modelcheck.Move[world]{Label: "the eviction of the crashed manager arrives", To: w, Wrong: errors.Join(wrong, m.stored(w))})
	}
}

// stored says what is wrong with the version that a move has stored.
func (m mover) stored(w world) error {
	before, after := m.from.Stored, w.Stored
	if before == after {
		return nil
	}
	switch {
	case before.End != running && (after.End != before.End || after.Processed != before.Processed || after.Active != before.Active):
		return fmt.Errorf("%w: the request", errFinal)
	case before.Plan != 0 && after.Plan != before.Plan:
		return fmt.Errorf("%w: the plan", errFinal)
	case before.Processed&^after.Processed != 0:
		return fmt.Errorf("%w: a turn that was over", errFinal)
	case before.Active&^(after.Active|after.Processed) != 0:
		return fmt.Errorf("%w: a turn that ended without a trace", errFinal)
	case after.Seen < before.Seen:
		return fmt.Errorf("%w: the observed generation", errFinal)
	case before.Wanted != after.Wanted && before.Gen == after.Gen:
		return fmt.Errorf("%w: the requesters", errFinal)
	}
	for i := range before.Items {
		if before.Items[i].Done && !after.Items[i].Done {
			return fmt.Errorf("%w: a completion", errFinal)
		}
		if before.Items[i].Forbids && !after.Items[i].Forbids {
			return fmt.Errorf("%w: what an interceptor forbids", errFinal)
		}
	}
	if before.End == after.End {
		return nil
	}
	alive := !w.Pod.ended()
	switch {
	case after.End == endedDeleted && w.Pod != podGone && w.Pod != podReplaced,
		after.End == endedTerminal && alive,
		after.End == endedUnwanted && !after.unwanted(),
		after.End == endedRefused && (alive || before.Plan != 0):
		return fmt.Errorf("%w: %d with the pod in phase %d", errOutcome, after.End, w.Pod)
	}
	return nil
}

// checkWorld says what is wrong with a state.
func checkWorld(w world) error {
	r := w.Stored
	switch {
	case bits.OnesCount8(uint8(r.Active)) > 1:
		return errTwoActive
	case r.Active != 0 && r.End != running:
		return fmt.Errorf("%w: somebody is active after the end", errOrder)
	}
	// Those who had their turn come first, then the one whose turn it is.
	if had := r.Processed | r.Active; had&(had+1) != 0 || r.Active != 0 && r.Active < r.Processed {
		return errOrder
	}
	return nil
}
