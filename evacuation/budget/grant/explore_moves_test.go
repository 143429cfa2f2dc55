package grant

import (
	"fmt"

	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

// moves are all that can happen.
func (s exploreScope) moves(step func(Input) Decision) func(exploredWorld, func(modelcheck.Move[exploredWorld])) {
	return func(w exploredWorld, to func(modelcheck.Move[exploredWorld])) {
		next, wrong := s.decide(w, step, 1<<s.budgets()-1, true)
		to(modelcheck.Move[exploredWorld]{Label: "the manager grants", To: next, Own: true, Wrong: wrong})
		if w.Crashes > 0 {
			s.crash(w, step, to)
		}
		for i := range s.places() {
			s.place(w, i, to)
		}
		later := w
		later.Paused = 0
		for i := range later.Places {
			if later.Places[i].Turn == waits {
				later.Places[i].Turn = waitsLong
			}
		}
		to(modelcheck.Move[exploredWorld]{Label: "time passes", To: later, Own: true})
		if opened := w; w.Closed {
			opened.Closed = false
			to(modelcheck.Move[exploredWorld]{Label: "a window opens", To: opened, Own: true})
		} else if closed := w; w.Closes > 0 {
			closed.Closes, closed.Closed = w.Closes-1, true
			to(modelcheck.Move[exploredWorld]{Label: "the window closes", To: closed})
		}
		if blocked := w; w.Blocks > 0 {
			blocked.Blocks, blocked.Blocked = w.Blocks-1, true
			to(modelcheck.Move[exploredWorld]{Label: "the condition is not true any more", To: blocked})
		}
	}
}

// crash of the manager: before it reports, with all memory.
func (s exploreScope) crash(w exploredWorld, step func(Input) Decision, to func(modelcheck.Move[exploredWorld])) {
	for writes := range bits(1 << s.budgets()) {
		next, _ := s.decide(w, step, writes, false)
		next.Crashes--
		for i := range next.Places {
			next.Places[i].Gone = 0
		}
		to(modelcheck.Move[exploredWorld]{Label: fmt.Sprintf("the manager crashes when it has written the budgets %02b", writes), To: next})
	}
}

// settled is a world in which nobody waits but for a condition that is false for good.
func (s exploreScope) settled(w exploredWorld) bool {
	for i := range s.places() {
		t, forGood := w.Places[i].Turn, w.Blocked && s.covers(i).has(0)
		if (t == waits || t == waitsLong) && !forGood {
			return false
		}
	}
	return true
}

// place passes on what can happen to a pod.
func (s exploreScope) place(w exploredWorld, i int, to func(modelcheck.Move[exploredWorld])) {
	move := func(what string, own bool, change func(w *exploredWorld, p *place)) {
		next := w
		change(&next, &next.Places[i])
		to(modelcheck.Move[exploredWorld]{Label: fmt.Sprintf("%s %s", s.uid(i), what), To: next, Own: own})
	}
	p := w.Places[i]
	switch p.Phase {
	case absent:
		move("is made again", true, func(_ *exploredWorld, p *place) { p.Phase = notReady })
		return
	case notReady:
		move("is ready", true, func(_ *exploredWorld, p *place) { p.Phase = settling })
	case settling:
		move("has settled", true, func(_ *exploredWorld, p *place) { p.Phase = up })
	case deleting:
		move("is gone", true, func(_ *exploredWorld, p *place) {
			p.Left |= p.Granted
			p.Gone |= ^p.Granted & (1<<s.budgets() - 1)
			p.Phase, p.Turn, p.Granted = absent, noRequest, 0
		})
	case up:
	}
	if p.Turn == passed && p.Phase != deleting {
		move("is evicted", true, func(_ *exploredWorld, p *place) { p.Phase = deleting })
	}
	if p.Turn == noRequest && w.Requests > 0 {
		move("is requested", false, func(w *exploredWorld, p *place) { p.Turn, w.Requests = waits, w.Requests-1 })
	}
	if p.Turn != noRequest && w.Changes > 0 {
		move("is wanted no more", false, func(w *exploredWorld, p *place) { p.Turn, w.Changes = noRequest, w.Changes-1 })
	}
	if (p.Phase == up || p.Phase == settling) && w.Faults > 0 {
		move("fails", false, func(w *exploredWorld, p *place) { p.Phase, w.Faults = notReady, w.Faults-1 })
		move("is deleted", false, func(w *exploredWorld, p *place) { p.Phase, w.Faults = deleting, w.Faults-1 })
	}
}
