package budget

import (
	"fmt"

	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

// singlesMove passes on what happens. Own moves happen by themselves.
type singlesMove func(own bool, to singlesWorld, wrong error, label string, args ...any)

// moves are all that can happen.
func (x *singles) moves(w singlesWorld, to func(modelcheck.Move[singlesWorld])) {
	move := func(own bool, next singlesWorld, wrong error, label string, args ...any) {
		if !x.lags {
			next = x.counted(next)
			next.Behind, next.Was, next.WasOld = 0, singleUp, false
		}
		to(modelcheck.Move[singlesWorld]{Label: fmt.Sprintf(label, args...), To: next, Own: own, Wrong: wrong})
	}
	for m := range x.leaders {
		x.manager(w, m, move)
	}
	for i := range x.count {
		x.place(w, i, move)
	}
	x.around(w, move)
}

// fresh is a manager that has just read the budget, and does nothing.
func (x *singles) fresh(w singlesWorld) singleManager {
	if x.reads {
		return singleManager{}
	}
	return singleManager{Memory: w.Budget}
}

// ends makes a manager forget the answer, but not what it has read.
func (m *singleManager) ends() { *m = singleManager{Stale: m.Stale, Memory: m.Memory} }

// writes stores the budget, of which the others know nothing.
func (x *singles) writes(w *singlesWorld, m int, b singleBudget) {
	w.Budget = b
	for other := range w.Managers[:x.leaders] {
		if other != m {
			w.Managers[other].Stale = true
		}
	}
	if !x.reads {
		w.Managers[m].Memory = b
	}
}

// manager passes on what one does, and its end.
func (x *singles) manager(w singlesWorld, m int, move singlesMove) {
	one := w.Managers[m]
	if one.Stage == singleIdle {
		move(true, x.decided(w, m, true), nil, "manager %d grants", m)
		for i := range x.count {
			if next, ok := x.begins(w, m, i); ok {
				move(true, next, nil, "manager %d would have pod %d deleted", m, i)
			}
		}
	} else {
		x.advances(w, m, move)
	}
	if w.Left.Crashes == 0 {
		return
	}
	crashed := w
	crashed.Left.Crashes--
	crashed.Managers[m] = x.fresh(crashed)
	move(false, crashed, nil, "manager %d crashes", m)
	if one.Stage == singleIdle && !one.Stale {
		crashed = x.decided(crashed, m, false)
		crashed.Managers[m] = x.fresh(crashed)
		move(false, crashed, nil, "manager %d crashes when it has granted, and has told nobody", m)
	}
}

// decided is the world after a manager has decided about grants. A write with an old
// resourceVersion fails, and the budget is read again.
func (x *singles) decided(w singlesWorld, m int, tells bool) singlesWorld {
	if w.Managers[m].Stale {
		w.Managers[m] = x.fresh(w)
		return w
	}
	next := x.grants(w)
	if next.budget != w.Budget {
		x.writes(&w, m, next.budget)
	}
	for i, told := range next.told {
		if p := &w.Places[i]; tells && told && p.Turn == singleWaits {
			p.Turn = singleRefused
		}
	}
	return w
}

// begins is the world in which a manager has read everything, and would have a pod deleted.
func (x *singles) begins(w singlesWorld, m, i int) (singlesWorld, bool) {
	p := w.Places[i]
	if p.Turn != singleRefused && p.Turn != singleDue || !p.there() {
		return w, false
	}
	if x.reads {
		w.Managers[m] = x.fresh(w)
	}
	one, read := &w.Managers[m], w.Budget
	if !x.reads {
		read = one.Memory
	}
	if read.Withdrawn || !x.deletes(w, read, i, false) {
		return w, false
	}
	one.Stage, one.Pod, one.Marked, one.Withdrawn = singleDecided, uint8(i), read.Records[i].Marked, w.Budget.Withdrawn
	return w, true
}

// advances takes a manager one step further with its pod.
func (x *singles) advances(w singlesWorld, m int, move singlesMove) {
	one := w.Managers[m]
	switch {
	case one.Stage == singleCalling:
		x.answers(w, m, move)
	case (one.Stage == singleDecided) == x.marksFirst:
		move(true, x.marks(w, m), nil, "manager %d records that pod %d goes", m, one.Pod)
	default:
		next, wrong := x.calls(w, m)
		move(true, next, wrong, "manager %d looks again, and has pod %d deleted", m, one.Pod)
	}
}

// marks is the world in which it is on record that a pod goes, or the write has failed.
func (x *singles) marks(w singlesWorld, m int) singlesWorld {
	one := &w.Managers[m]
	i := int(one.Pod)
	switch {
	case one.Marked: // Nothing is written.
	case x.versions && one.Stale:
		*one = x.fresh(w)
		return w
	default:
		b := w.Budget
		r := &b.Records[i]
		if one.Gone {
			r.LeftMarked = r.Left
		} else {
			r.Marked = r.Granted
		}
		x.writes(&w, m, b)
		w.Places[i].Held = x.lasts && !one.Gone && r.Marked && w.Places[i].Turn == singleUnwanted
	}
	if x.marksFirst {
		one.Stage = singleRecorded
	} else {
		one.ends()
	}
	return w
}

// calls looks at pods, time and windows again, and sends the deletion.
func (x *singles) calls(w singlesWorld, m int) (singlesWorld, error) {
	one := &w.Managers[m]
	i := int(one.Pod)
	if one.Gone || x.looks && !x.deletes(w, w.Budget, i, true) {
		one.ends()
		return w, nil
	}
	var wrong error
	switch {
	case w.Closed:
		wrong = errSingleClosed
	case one.Withdrawn:
		wrong = errSingleConsent
	case w.Places[i].Turn == singleRefused:
		wrong = errSingleEarly
	case w.isOut(i):
		wrong = errTwoSingles
	case w.isUnready(i):
		wrong = errOtherUnready
	}
	one.Stage, w.Places[i].Flying = singleCalling, true
	return w, wrong
}

// isOut reports whether another pod was deleted and is not back.
func (w singlesWorld) isOut(but int) bool {
	for i, p := range w.Places {
		if i != but && p.Out {
			return true
		}
	}
	return false
}

// isUnready reports whether another pod is there and cannot be counted upon.
func (w singlesWorld) isUnready(but int) bool {
	for i, p := range w.Places {
		if i != but && (p.Phase == singleUnready || p.Phase == singleLeaving) {
			return true
		}
	}
	return false
}

// answers passes on what can become of a deletion while somebody waits for it.
func (x *singles) answers(w singlesWorld, m int, move singlesMove) {
	i := int(w.Managers[m].Pod)
	next, wrong := w, error(nil)
	if !w.Managers[m].Gone {
		next, wrong = w.lands(i)
	}
	lost := next
	if x.marksFirst {
		next.Managers[m].ends()
	} else {
		next.Managers[m].Stage = singleRecorded
	}
	move(true, next, wrong, "manager %d is told that pod %d is being deleted", m, i)
	if w.Left.Refusals > 0 {
		refused := w
		refused.Left.Refusals--
		refused.Places[i].Flying = false
		refused.Managers[m].ends()
		move(false, refused, nil, "the API server refuses to delete pod %d for manager %d", i, m)
	}
	if w.Left.Hangs > 0 {
		lost.Left.Hangs--
		lost.Managers[m].ends()
		move(false, lost, wrong, "pod %d is being deleted, and manager %d does not get the answer", i, m)
		late := w
		late.Left.Hangs--
		late.Managers[m].ends()
		move(false, late, nil, "manager %d gives up, and the deletion of pod %d is still on its way", m, i)
	}
}

// lands lets a deletion come to the API server.
func (w singlesWorld) lands(i int) (singlesWorld, error) {
	p := &w.Places[i]
	if !p.Flying {
		return w, nil // It came before.
	}
	p.Flying = false
	if !p.there() {
		return w, nil
	}
	var wrong error
	if w.isOut(i) {
		wrong = errTwoSingles
	}
	p.Out = true
	return w.becomes(i, singleLeaving), wrong
}

// becomes is the world with another phase of a pod. The caches are behind by what has happened to
// one place.
func (w singlesWorld) becomes(i int, phase singlePhase) singlesWorld {
	if int(w.Behind) != i+1 {
		w.Behind, w.Was, w.WasOld = uint8(i+1), w.Places[i].Phase, false
	}
	w.Places[i].Phase = phase
	return w
}

// isAsked reports whether a manager is about to have the pod of a place deleted.
func (w singlesWorld) isAsked(i int, stages ...singleStage) bool {
	for _, m := range w.Managers {
		for _, stage := range stages {
			if m.Stage == stage && int(m.Pod) == i && !m.Gone {
				return true
			}
		}
	}
	return false
}

// place passes on what can happen to a pod and its request.
func (x *singles) place(w singlesWorld, i int, move singlesMove) {
	p := w.Places[i]
	switch p.Phase {
	case singleLeaving:
		move(true, x.gone(w, i), nil, "pod %d is gone", i)
	case singleAbsent:
		move(true, w.becomes(i, singleUnready), nil, "pod %d is made again", i)
	case singleUnready:
		back := w.becomes(i, singleUp)
		back.Places[i].Out = false
		move(true, back, nil, "pod %d is ready", i)
	case singleUp:
	}
	if p.Flying && !w.isAsked(i, singleCalling) {
		next, wrong := w.lands(i)
		move(true, next, wrong, "the late deletion of pod %d comes", i)
		never := w
		never.Places[i].Flying = false
		move(true, never, nil, "the late deletion of pod %d never comes", i)
	}
	if p.Held && !p.Flying && !w.isAsked(i, singleDecided, singleRecorded, singleCalling) {
		next := w
		next.Places[i].Held = false
		move(true, next, nil, "a minute has passed since the request for pod %d ended", i)
	}
	if p.Turn != singleUnwanted && w.Left.Cancels > 0 {
		next := w
		next.Left.Cancels--
		next.Places[i].Turn, next.Places[i].Held = singleUnwanted, x.lasts && w.Budget.Records[i].Marked
		move(false, next, nil, "nobody wants pod %d gone any more", i)
	}
	if w.Left.Faults == 0 || !p.there() {
		return
	}
	deleted := w.becomes(i, singleLeaving)
	deleted.Left.Faults--
	move(false, deleted, nil, "somebody deletes pod %d", i)
	if p.Phase == singleUp {
		failed := w.becomes(i, singleUnready)
		failed.Left.Faults--
		move(false, failed, nil, "pod %d fails", i)
	}
}

// gone is the world without a pod that was leaving. Its request has ended.
func (x *singles) gone(w singlesWorld, i int) singlesWorld {
	w = w.becomes(i, singleAbsent)
	w.WasOld = true
	p := &w.Places[i]
	p.Turn, p.Held, p.Flying = singleUnwanted, false, false
	w.Budget.Records[i].gone()
	for m := range w.Managers[:x.leaders] {
		one := &w.Managers[m]
		one.Memory.Records[i].gone()
		one.Gone = one.Gone || one.Stage != singleIdle && int(one.Pod) == i
	}
	return w
}

// around passes on what happens to all pods.
func (x *singles) around(w singlesWorld, move singlesMove) {
	later := w
	for i := range later.Places {
		if p := &later.Places[i]; p.Turn == singleRefused {
			p.Turn = singleDue
		}
	}
	if later != w {
		move(true, later, nil, "pods were refused for long enough")
	}
	if next := w; w.Closed {
		next.Closed = false
		move(true, next, nil, "a window opens")
	} else if w.Left.Closes > 0 {
		next.Closed, next.Left.Closes = true, w.Left.Closes-1
		move(false, next, nil, "the window closes")
	}
	if next := w; w.Left.Withdraws > 0 {
		next.Budget.Withdrawn, next.Left.Withdraws = true, w.Left.Withdraws-1
		for m := range next.Managers[:x.leaders] {
			next.Managers[m].Stale = true
		}
		move(false, next, nil, "consent is withdrawn")
	}
	if next := x.counted(w); next != w {
		move(true, next, nil, "the disruption controller counts")
	}
	if next := w; w.Behind != 0 {
		next.Behind, next.Was, next.WasOld = 0, singleUp, false
		move(true, next, nil, "the caches catch up")
	}
}

// settled is a world in which nobody waits, but for consent.
func (w singlesWorld) settled() bool {
	if w.Budget.Withdrawn {
		return true
	}
	for _, p := range w.Places {
		if p.Turn != singleUnwanted {
			return false
		}
	}
	return true
}
