package process

import (
	"slices"
	"time"
)

// Step decides about a request. It is total and deterministic: the same snapshot, time
// and policy give the same decision, and a step on its own result at the same time
// changes nothing, as long as no participant reports before its turn (the API refuses
// that).
func Step(s Snapshot, now time.Time, p Policy) Decision {
	d := Decision{
		Participants:       slices.Clone(s.Participants),
		Outcome:            s.Outcome,
		Cause:              s.Cause,
		ObservedGeneration: max(s.ObservedGeneration, s.Generation),
	}
	switch {
	case s.Outcome != OutcomeRunning:
		// Final. Only the generation is updated.
	case s.Target.Presence == Unknown:
		d.ObservedGeneration = s.ObservedGeneration // Nothing has been acted on.
	case s.Withdrawn:
		withdrawn(&d, s, now, p)
	case len(s.Participants) == 0:
		first(&d, s, now, p)
	default:
		next(&d, s, now, p)
	}
	d.Changed = len(d.Transitions) > 0 || len(d.Participants) != len(s.Participants) ||
		d.Outcome != s.Outcome || d.ObservedGeneration != s.ObservedGeneration
	return d
}

// withdrawn handles a request that is being deleted: the active participant loses its
// turn, and no other gets one.
func withdrawn(d *Decision, s Snapshot, now time.Time, p Policy) {
	active := activeIndex(d.Participants)
	switch {
	case len(s.Participants) == 0 && s.Target.Presence == Gone:
		d.end(OutcomeCanceled, TargetNotFound)
	case len(s.Participants) == 0 && s.Target.Presence == Replaced:
		d.end(OutcomeCanceled, TargetMismatch)
	case s.Target.ended():
		finish(d, s.Target, active, now, p)
	case active >= 0:
		d.move(active, finalState(d.Participants[active], Canceled))
	}
}

// first handles a request that was never acted on. Only here the target can be refused:
// once there is a plan, absence means that the target has ended.
func first(d *Decision, s Snapshot, now time.Time, p Policy) {
	switch {
	case s.Target.Presence == Gone:
		d.end(OutcomeCanceled, TargetNotFound)
		return
	case s.Target.Presence == Replaced:
		d.end(OutcomeCanceled, TargetMismatch)
		return
	case s.Target.Grouped:
		d.end(OutcomeCanceled, TargetGrouped)
		return
	}
	for _, planned := range s.Planned {
		d.Participants = append(d.Participants, Participant{
			Name: planned.Name, HeartbeatDeadline: planned.HeartbeatDeadline, Minimum: planned.Minimum, Skips: planned.Skips,
			OnNodeLost: planned.OnNodeLost, LastResort: planned.LastResort, Unhurried: planned.Unhurried,
		})
	}
	next(d, s, now, p)
}

// next handles a request with a plan. The end of the target takes precedence over
// cancellation (statement 93), completion over silence (statement 74).
func next(d *Decision, s Snapshot, now time.Time, p Policy) {
	active := activeIndex(d.Participants)
	if len(s.Intents) == 0 && !s.Target.ended() {
		d.Forbidding = forbidding(d.Participants)
	}
	d.Lost = !s.Target.ended() && s.lost(now)
	switch {
	case s.Target.ended():
		finish(d, s.Target, active, now, p)
		return
	case len(s.Intents) == 0 && d.Forbidding == "":
		if active >= 0 {
			d.move(active, finalState(d.Participants[active], Canceled))
		}
		d.end(OutcomeCanceled, NoIntent)
		return
	case d.cutOff(s, now):
	case active < 0:
		d.activateNext(s, now)
	case d.Participants[active].LastResort:
		// No participant follows. A reported completion while the target lives must not
		// leave the request without an active participant.
	case !d.Participants[active].CompletedAt.IsZero():
		d.move(active, Completed)
		d.activateNext(s, now)
	case d.Lost && d.Participants[active].OnNodeLost == LostInterrupt && !d.Participants[active].Unhurried:
		d.passOver(active)
		d.activateNext(s, now)
	default:
		if due, ok := deadline(d.Participants[active], active, s, now, p); ok && !now.Before(due) {
			d.move(active, Interrupted)
			if !d.cutOff(s, now) {
				d.activateNext(s, now)
			}
		}
	}
	if active = activeIndex(d.Participants); active >= 0 {
		if due, ok := deadline(d.Participants[active], active, s, now, p); ok {
			if s.Deadline.After(now) && s.Deadline.Before(due) {
				due = s.Deadline
			}
			// Never in the past: with a deadline of zero a turn still lasts a moment.
			d.WakeAt = later(due, now.Add(time.Millisecond))
		}
	}
	if s.LostAt.After(now) && (d.WakeAt.IsZero() || s.LostAt.Before(d.WakeAt)) {
		d.WakeAt = s.LostAt
	}
}

// lost reports whether the node counts as lost.
func (s Snapshot) lost(now time.Time) bool { return !s.LostAt.IsZero() && !now.Before(s.LostAt) }

// passOver takes the turn, or the prospect of one, from a participant that can do nothing
// for a pod whose node is lost.
func (d *Decision) passOver(i int) {
	d.PassedOver = append(d.PassedOver, d.Participants[i].Name)
	d.move(i, Interrupted)
}

// forbidding is the first participant that has forbidden to cancel, "" if there is none.
func forbidding(participants []Participant) string {
	if i := slices.IndexFunc(participants, func(a Participant) bool { return a.CancelForbidden }); i >= 0 {
		return participants[i].Name
	}
	return ""
}

// finish handles the end of the target: the active participant gets the grace to
// report, no other gets a turn.
func finish(d *Decision, t Target, active int, now time.Time, p Policy) {
	if active >= 0 {
		a := d.Participants[active]
		seen := t.EndSeenAt
		if seen.IsZero() || seen.After(now) {
			seen = now
		}
		// The last resort has nothing to report beyond the end.
		if over := seen.Add(p.CompletionGrace); a.CompletedAt.IsZero() && !a.LastResort && now.Before(over) {
			d.WakeAt = over
			return
		}
		d.move(active, finalState(a, Interrupted))
	}
	if t.Presence == Present {
		d.end(OutcomeEvicted, TargetTerminal)
	} else {
		d.end(OutcomeEvicted, TargetDeleted)
	}
}

// deadline returns when the active participant counts as silent, and false if
// it never does. The baseline is its activation, for the first one also the
// request's creation, and its last heartbeat, which counts as no later than the
// skew after it was first seen: a heartbeat from next year, let in while our
// webhook was down, would hold the request until then.
func deadline(a Participant, index int, s Snapshot, now time.Time, p Policy) (time.Time, bool) {
	if a.LastResort {
		return time.Time{}, false
	}
	baseline := a.ActivatedAt
	if index == 0 {
		baseline = later(baseline, s.CreatedAt)
	}
	seen := a.HeartbeatSeenAt
	if seen.IsZero() || seen.After(now) {
		seen = now
	}
	heartbeat := a.HeartbeatAt
	if limit := seen.Add(p.ClockSkew); heartbeat.After(limit) {
		heartbeat = limit
	}
	due := later(baseline, heartbeat).Add(p.DeadlineOf(a))
	if !s.EngineStartedAt.IsZero() {
		due = later(due, s.EngineStartedAt.Add(p.StartupGrace))
	}
	return due, true
}

// activateNext gives the turn to the first participant that had none yet, and that is not
// skipped for want of time or of a node. If there is none, the request stays unchanged: no
// interruption leads to that state, because the last resort never counts as silent.
func (d *Decision) activateNext(s Snapshot, now time.Time) {
	for i, a := range d.Participants {
		switch {
		case a.State != Inactive:
			continue
		case d.Lost && a.OnNodeLost != LostWait && !a.LastResort && !a.Unhurried:
			d.passOver(i)
			continue
		case d.skip(a, i, s, now):
			continue
		}
		d.move(i, Active)
		d.Participants[i].ActivatedAt = now
		return
	}
}

// skip gives short notice to a participant that needs longer than the deadline leaves it,
// and reports whether it is passed over. What is skipped stays so if the deadline moves.
func (d *Decision) skip(a Participant, i int, s Snapshot, now time.Time) bool {
	if s.Deadline.IsZero() || a.Minimum == 0 || a.LastResort || a.Unhurried || !now.Add(a.Minimum).After(s.Deadline) {
		return false
	}
	d.ShortNotices = append(d.ShortNotices, ShortNotice{Name: a.Name, Needs: a.Minimum, Has: max(0, s.Deadline.Sub(now)), Skipped: a.Skips})
	if a.Skips {
		d.move(i, Interrupted)
	}
	return a.Skips
}

// cutOff passes over those whom the deadline leaves no time: who is active loses the turn,
// and who waits gets none, up to the first one that the deadline does not hurry. Who has
// reported that it is done is done. It reports false if nobody loses anything by it.
func (d *Decision) cutOff(s Snapshot, now time.Time) bool {
	if s.Deadline.IsZero() || now.Before(s.Deadline) {
		return false
	}
	to := slices.IndexFunc(d.Participants, func(a Participant) bool {
		return (a.LastResort || a.Unhurried) && !a.State.Final() && (a.LastResort || a.CompletedAt.IsZero())
	})
	if to < 0 || !slices.ContainsFunc(d.Participants[:to], func(a Participant) bool { return !a.State.Final() && a.CompletedAt.IsZero() }) {
		return false
	}
	for i, a := range d.Participants[:to] {
		if !a.State.Final() {
			d.move(i, finalState(a, Interrupted))
		}
	}
	d.activateNext(s, now)
	d.CutOff = true
	return true
}

func activeIndex(participants []Participant) int {
	return slices.IndexFunc(participants, func(a Participant) bool { return a.State == Active })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (d *Decision) move(i int, to State) {
	d.Transitions = append(d.Transitions, Transition{Name: d.Participants[i].Name, From: d.Participants[i].State, To: to})
	d.Participants[i].State = to
}

func (d *Decision) end(o Outcome, c Cause) { d.Outcome, d.Cause = o, c }

// finalState is Completed for a participant that said so, otherwise the given state.
func finalState(a Participant, otherwise State) State {
	if !a.CompletedAt.IsZero() {
		return Completed
	}
	return otherwise
}
