package request

import (
	"errors"
	"fmt"
)

var (
	errOverstays = errors.New("an interceptor kept or got the turn although the deadline had come")
	errNoTurn    = errors.New("an interceptor got no turn although the deadline had not come")
)

// overdue reports whether the deadline of a requester has come.
func (r record) overdue() bool {
	return r.Wanted.has(0) && (r.Due != never && r.Due >= 0 || r.Hard && r.UntilHard && r.Until >= 0)
}

// deadlines are what a requester may do with its own: set one, move it ahead, take it away, and
// no longer wait.
func (m mover) deadlines() {
	if m.from.Deadlines == 0 || !m.from.Stored.Wanted.has(0) || m.from.Stored.End != running {
		return
	}
	hard := m.from
	hard.Deadlines--
	becomes := hard.Stored
	becomes.Due, becomes.Hard = never, !becomes.Hard
	becomes.Gen++
	m.store(&hard, becomes)
	m.move("requester 0 stops to wait, or waits again", hard)
	if m.from.Stored.Hard {
		return // It has no deadline.
	}
	dues := map[age]string{-1: "is in a tick"}
	if m.from.Stored.Due != never {
		dues = map[age]string{0: "is over", never: "is taken away"}
	}
	for due, label := range dues {
		w := m.from
		w.Deadlines--
		next := w.Stored
		next.Due = due
		next.Gen++
		m.store(&w, next)
		m.move("the deadline of requester 0 "+label, w)
	}
}

// short reports whether the interceptor needs longer than the requester leaves it.
func (r record) short(i int) bool {
	return i == 1 && r.Wanted.has(0) && (r.Hard || r.Due != never && r.Due > -exploredMinimum)
}

// deadlineKept says what is wrong with who has the turn, or will have none, as the
// controller leaves it.
func (a *actors) deadlineKept(in lookInput, write record) error {
	if in.pod.ended() || in.cached.ended() || write.End != running || write.unwanted() {
		return nil
	}
	for i := range a.custom {
		switch late := in.view.overdue(); {
		case late && in.cached != podUnseen && write.Active.has(i):
			return fmt.Errorf("%w: %d", errOverstays, i)
		case !late && write.Processed.has(i) && !in.view.Processed.has(i) && !in.view.Active.has(i) && !in.view.short(i):
			return fmt.Errorf("%w: %d", errNoTurn, i)
		}
	}
	return nil
}
