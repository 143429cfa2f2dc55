package request

import "fmt"

// people are interceptors and requesters.
func (m mover) people() {
	for i := range int(m.from.Stored.Plan) {
		w := m.from
		if !w.Stored.Active.has(i) || w.Stored.End != running {
			continue // The API server refuses it.
		}
		last := i == int(w.Stored.Plan)-1
		next := w.Stored
		if beat := next.Items[i].Beat; !last && beat != nextYear && beat >= 1 {
			next.Items[i].Beat = 0
			beats := w
			m.store(&beats, next)
			m.move(fmt.Sprintf("interceptor %d sends a heartbeat", i), beats)

			if w.Lies > 0 {
				next.Items[i].Beat = nextYear
				lies := w
				lies.Lies--
				m.store(&lies, next)
				m.move(fmt.Sprintf("interceptor %d sends a heartbeat of next year", i), lies)
			}
		}
		if next = w.Stored; w.Forbids > 0 && !last && !next.Items[i].Forbids {
			next.Items[i].Forbids = true
			forbids := w
			forbids.Forbids--
			m.store(&forbids, next)
			m.move(fmt.Sprintf("interceptor %d forbids to cancel", i), forbids)
		}
		if next = w.Stored; !next.Items[i].Done && (!last || w.Lies > 0) {
			next.Items[i].Done = true
			done := w
			if last {
				done.Lies--
			}
			m.store(&done, next)
			m.move(fmt.Sprintf("member %d of the plan reports its completion", i), done)
		}
	}
	m.requesters()
	m.deadlines()
}

func (m mover) requesters() {
	if m.from.Changes == 0 || m.from.Stored.unwanted() {
		return // Nobody is added to a request that was given up.
	}
	for i := range 2 {
		w := m.from
		w.Changes--
		next := w.Stored
		next.Wanted ^= seats(0).with(i)
		if i == 0 {
			next.Due, next.Hard = never, false // A deadline goes with its requester.
		}
		next.Gen++
		m.store(&w, next)
		m.move(fmt.Sprintf("requester %d comes or goes", i), w)
	}
}

// pod is what may become of the pod without us.
func (m mover) pod() {
	set := func(label string, p podPhase) {
		w := m.from
		w.Pod = p
		m.move(label, w)
	}
	switch m.from.Pod {
	case podRunning:
		set("somebody deletes the pod", podDeleting)
		set("the pod ends by itself", podTerminal)
	case podDeleting:
		w := m.from
		w.Pod = podGone
		m.own("the pod is gone", w, nil)
	case podTerminal:
		set("the ended pod is deleted", podGone)
	case podGone:
		set("another pod gets the name", podReplaced)
	case podReplaced, podUnseen:
	}
	if w := m.from; w.Evictor.Last.Text == textBudget && !w.Evictor.Armed && !w.Evictor.Woken {
		w.Evictor.Woken, w.Evictor.Dirty = true, true
		m.move("the budget has room", w)
	}
}
