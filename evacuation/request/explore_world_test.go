package request

import (
	"fmt"
	"slices"
	"time"

	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// The exploration of every interleaving: explore_world_test.go has the world and
// its clock, explore_object_test.go turns its records into objects of the API and
// back, explore_actors_test.go lets the controller and the evictor act on them,
// explore_moves_test.go says what else can happen, explore_test.go runs it all.

// tick is the grain of time. It is the least distance of heartbeats that the API
// accepts, so a heartbeat of the model is one that the schema would let through.
const tick = time.Minute

// age says how many ticks ago something was. All times of the world are ages, so
// that it needs no end of time: what is older than anything asks for stays as old.
type age int8

const (
	// never: it has not happened.
	never age = 127
	// oldest is older than every deadline of the policies below: two ticks, and one
	// more for a heartbeat that counts as the clock skew later than it was seen.
	oldest age = 3
	// nextYear is a time from the future that never comes closer.
	nextYear age = -100
)

// exploreEpoch is now, in every state.
var exploreEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// time of an age; zero if it never was.
func (a age) time() time.Time {
	if a == never {
		return time.Time{}
	}
	return exploreEpoch.Add(-time.Duration(a) * tick)
}

// ageOf is the inverse of time.
func ageOf(t time.Time) age {
	if t.IsZero() {
		return never
	}
	a := exploreEpoch.Sub(t)
	if a%tick != 0 {
		panic(fmt.Sprintf("%s is no whole number of ticks ago", t))
	}
	return min(age(a/tick), oldest)
}

// older is the age after the clock has gone on by so many ticks, or back.
func (a age) older(ticks age) age {
	switch {
	case a == never, a == nextYear:
		return a
	case a == oldest && ticks < 0:
		return a // It was older still.
	default:
		return min(a+ticks, oldest)
	}
}

// nearer is older for a deadline. How long ago one was makes no difference.
func (a age) nearer(ticks age) age {
	if a == never {
		return a
	}
	return min(a.older(ticks), 0)
}

// ticks until a time; none if it is zero.
func ticksUntil(t time.Time) age {
	if t.IsZero() {
		return never
	}
	return ticksFor(t.Sub(exploreEpoch))
}

// ticksFor is how many ticks cover a duration, at least one.
func ticksFor(d time.Duration) age { return max(age((d+tick-1)/tick), 1) }

func explorePolicy() process.Policy {
	return process.Policy{HeartbeatDeadline: 2 * tick, ClockSkew: 10 * time.Second, CompletionGrace: tick, StartupGrace: tick, HardNotice: tick}
}

func exploreEvictPolicy() evictor.Policy {
	return evictor.Policy{
		BackoffMin: tick, BackoffMax: 2 * tick, HeartbeatMin: tick, HeartbeatInterval: 2 * tick, SettleTime: tick, TimerPlaces: 10,
	}
}

// maxCustom is how many interceptors a pod of the model may have.
const maxCustom = 3

// seats is a set of members of the plan, by their position.
type seats uint8

func (s seats) has(i int) bool { return s&(1<<i) != 0 }

func (s seats) with(i int) seats { return s | 1<<i }

// ending is the outcome of a request in the words of its conditions.
type ending uint8

const (
	running ending = iota
	endedDeleted
	endedTerminal
	endedUnwanted
	endedRefused
)

func (e ending) canceled() bool { return e == endedUnwanted || e == endedRefused }

// wording is what the evictor's message says.
type wording uint8

const (
	textNone wording = iota
	textTerminating
	textBudget
	textDeadline
)

// item is what one interceptor has reported.
type item struct {
	// Beat is the heartbeat. The start is set with the first one and read by nobody.
	Beat age
	Done bool
	// Forbids: the request may not be canceled any more.
	Forbids bool
}

// record is an EvictionRequest: what is stored, cached, or on its way.
type record struct {
	// Made: it exists.
	Made bool
	// Wanted are the requesters, by number; Gen and Seen the generations.
	Wanted    seats
	Gen, Seen uint8
	// Due is the deadline of requester 0, Until the one in the status; a negative age is in
	// the future.
	Due, Until age
	// Hard: requester 0 does not wait. UntilHard: because of that Until is what it is.
	Hard, UntilHard bool
	// Labeled: the pod's labels are copied.
	Labeled bool
	// Plan is the number of members of the plan, the last resort included; 0 before
	// it is frozen.
	Plan              uint8
	Active, Processed seats
	Activated         age
	Items             [maxCustom + 1]item
	End               ending
	// Retries and Text are the evictor's own.
	Retries uint8
	Text    wording
}

// unwanted reports whether the last requester has left, and nobody forbids that.
func (r record) unwanted() bool {
	return r.Wanted == 0 && !slices.ContainsFunc(r.Items[:], func(i item) bool { return i.Forbids })
}

func (r record) older(ticks age) record {
	r.Activated, r.Due, r.Until = r.Activated.older(ticks), r.Due.nearer(ticks), r.Until.nearer(ticks)
	for i := range r.Items {
		r.Items[i].Beat = r.Items[i].Beat.older(ticks)
	}
	return r
}

// podPhase is what has become of the pod, in the only order there is.
type podPhase uint8

const (
	podUnseen podPhase = iota // Only in a cache.
	podRunning
	podDeleting
	podTerminal
	podGone
	podReplaced
)

// ended reports whether nothing is left to evict.
func (p podPhase) ended() bool { return p == podTerminal || p == podGone || p == podReplaced }

// timer says when a controller comes back by itself: so many ticks, or never.
type timer = age

// engine is the memory of the request controller.
type engine struct {
	// Dirty: an event waits for it. Wake: its timer.
	Dirty bool
	Wake  timer
	// Started is when it took over.
	Started age
	// EndSeen, and of whom which heartbeat was first seen when: see observed.
	EndSeen  age
	SeenOf   int8
	SeenBeat age
	SeenAt   age
	// Write is what it is about to store, Then when it would come back after that.
	// With LabelsFirst it takes two writes. A write is dropped as soon as something
	// else is stored, because it will be refused.
	Writes      bool
	LabelsFirst bool
	Write       record
	Then        timer
}

func (e *engine) noWrite() { e.Writes, e.LabelsFirst, e.Write, e.Then = false, false, record{}, 0 }

// lastTry is the evictor's memory of its last call.
type lastTry struct {
	At, Since age
	Text      wording // Of the refusal; textNone if it was accepted.
	Retries   uint8
}

// evictor is the memory of the evictor.
type evictorState struct {
	Dirty bool
	Wake  timer
	// Woken: a budget has room for this pod.
	Woken bool
	Last  lastTry
	// Armed: it has looked live and is about to call. Fresh: nothing has been stored
	// since that look.
	Armed, Fresh bool
}

// world is a state. It holds values only, so that equal worlds are one.
type world struct { //nolint:recvcheck // A state is a value; only what changes it takes a pointer.
	Stored, Cached record
	Pod, PodCached podPhase
	Engine         engine
	Evictor        evictorState
	// Ghost is a write of an engine that has died or lost its leadership meanwhile
	// and may still arrive. GhostCall is such a call of the evictor.
	GhostWrites bool
	Ghost       record
	GhostCall   bool
	// What may still happen so many times.
	Crashes, Back, Changes, Refusals, Lies, Deadlines, Forbids uint8
}

// older lets the time of everybody go on; a negative number only turns the clock
// back and leaves the timers, which run by another one.
func (w world) older(ticks age) world {
	w.Stored, w.Cached = w.Stored.older(ticks), w.Cached.older(ticks)
	w.Engine.Write, w.Ghost = w.Engine.Write.older(ticks), w.Ghost.older(ticks)
	e := &w.Engine
	e.Started, e.EndSeen = e.Started.older(ticks), e.EndSeen.older(ticks)
	e.SeenBeat, e.SeenAt = e.SeenBeat.older(ticks), e.SeenAt.older(ticks)
	l := &w.Evictor.Last
	l.At, l.Since = l.At.older(ticks), l.Since.older(ticks)
	if ticks > 0 {
		for _, t := range []*timer{&w.Engine.Wake, &w.Evictor.Wake} {
			if *t != never {
				*t = max(*t-ticks, 0)
			}
		}
	}
	return w
}

// normal drops what makes no difference any more, so that worlds which differ in
// nothing else are one.
func (w world) normal() world {
	w.Stored, w.Cached = w.Stored.normal(), w.Cached.normal()
	w.Engine.Write, w.Ghost = w.Engine.Write.normal(), w.Ghost.normal()
	e := &w.Engine
	e.Started = min(e.Started, ticksFor(explorePolicy().StartupGrace))
	if e.Dirty {
		e.Wake = never // Its next look sets another one.
	}
	if e.SeenBeat != nextYear && e.SeenBeat >= 0 {
		// First seen when it was sent, or later: only the limit on heartbeats from the
		// future asks, and this one is none.
		e.SeenAt = e.SeenBeat
	}
	if w.Evictor.Dirty {
		w.Evictor.Wake = never
	}
	return w
}

// quiet reports whether the request has ended and everybody knows.
func (w *world) quiet() bool {
	return w.Stored.End != running && w.Cached == w.Stored && !w.Engine.Dirty && !w.Engine.Writes &&
		!w.Evictor.Armed && !w.GhostWrites && !w.GhostCall
}

// normal drops the times of those whose turn is over.
func (r record) normal() record {
	if !r.Made {
		return r
	}
	for i := range r.Items {
		if r.Processed.has(i) || r.End != running {
			r.Items[i].Beat = never
		}
	}
	if r.End != running {
		r.Activated, r.Due, r.Until = never, never, never
	}
	return r
}
