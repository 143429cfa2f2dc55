package process

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// t0 is the start of every case.
var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// snap builds a snapshot: a target that is present, one intent, created at t0.
func snap(edits ...func(*Snapshot)) Snapshot {
	s := Snapshot{
		Target:     Target{Presence: Present},
		Intents:    []string{"drain"},
		CreatedAt:  t0,
		Generation: 1,
		Planned:    []Participant{{Name: "a"}, {Name: "b"}, {Name: "last", LastResort: true}},
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// with freezes the given plan; the request has been acted on before.
func with(participants ...Participant) func(*Snapshot) {
	return func(s *Snapshot) { s.Participants, s.ObservedGeneration = participants, s.Generation }
}

func target(t Target) func(*Snapshot) { return func(s *Snapshot) { s.Target = t } }

func noIntents(s *Snapshot) { s.Intents = nil }

func gone(s *Snapshot) { s.Withdrawn = true }

func active(name string, since time.Duration) Participant {
	return Participant{Name: name, State: Active, ActivatedAt: at(since)}
}

func (p Participant) heartbeat(d time.Duration) Participant {
	p.StartedAt, p.HeartbeatAt, p.HeartbeatSeenAt = at(d), at(d), at(d)
	return p
}

func (p Participant) within(deadline time.Duration) Participant {
	p.HeartbeatDeadline = deadline
	return p
}

func (p Participant) completed(d time.Duration) Participant {
	p.CompletedAt = at(d)
	return p
}

func (p Participant) forbids() Participant {
	p.CancelForbidden = true
	return p
}

func done(name string, s State) Participant { return Participant{Name: name, State: s} }

var (
	b          = Participant{Name: "b"}
	last       = Participant{Name: "last", LastResort: true}
	activeLast = Participant{Name: "last", LastResort: true, State: Active, ActivatedAt: t0}
)

// result is what the tables state of a decision.
type result struct {
	States  map[string]State
	Outcome Outcome
	Cause   Cause
	// WakeIn counts from the time of the step; -1 means never.
	WakeIn time.Duration
}

const never = time.Duration(-1)

func resultOf(d Decision, now time.Time) result {
	r := result{Outcome: d.Outcome, Cause: d.Cause, WakeIn: never}
	for _, p := range d.Participants {
		if r.States == nil {
			r.States = map[string]State{}
		}
		r.States[p.Name] = p.State
	}
	if !d.WakeAt.IsZero() {
		r.WakeIn = d.WakeAt.Sub(now)
	}
	return r
}

func TestStep(t *testing.T) {
	const deadline = 20 * time.Minute
	decides(t, map[string]stepCase{
		// The first look at the target: statements 51-56.
		"51: a target that was never there cancels": {
			snapshot: snap(target(Target{Presence: Gone})),
			want:     result{Outcome: OutcomeCanceled, Cause: TargetNotFound, WakeIn: never},
		},
		"52: another incarnation under the name cancels": {
			snapshot: snap(target(Target{Presence: Replaced})),
			want:     result{Outcome: OutcomeCanceled, Cause: TargetMismatch, WakeIn: never},
		},
		"53: a member of a group cancels": {
			snapshot: snap(target(Target{Presence: Present, Grouped: true})),
			want:     result{Outcome: OutcomeCanceled, Cause: TargetGrouped, WakeIn: never},
		},
		"53: a member of a group cancels even if nobody wants it": {
			snapshot: snap(target(Target{Presence: Present, Grouped: true}), noIntents),
			want:     result{Outcome: OutcomeCanceled, Cause: TargetGrouped, WakeIn: never},
		},
		"54: after a refusal a target that appears changes nothing": {
			snapshot: snap(func(s *Snapshot) { s.Outcome, s.Cause = OutcomeCanceled, TargetNotFound }),
			now:      time.Hour,
			want:     result{Outcome: OutcomeCanceled, Cause: TargetNotFound, WakeIn: never},
		},
		"55: an unknown target decides nothing on the first look": {
			snapshot: snap(target(Target{})),
			want:     result{WakeIn: never},
		},
		"55: an unknown target decides nothing later, whatever is due": {
			snapshot: snap(target(Target{}), noIntents, with(active("a", 0).completed(0), b, last)),
			now:      24 * time.Hour,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: never},
		},
		// Selection and progression: statements 62-75.
		"62, 64, 65: the plan is frozen in its order and the first one is active": {
			snapshot: snap(),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: deadline},
		},
		"63: with the last resort alone it is active and never due": {
			snapshot: snap(func(s *Snapshot) { s.Planned = []Participant{last} }),
			want:     result{States: map[string]State{"last": Active}, WakeIn: never},
		},
		"67: completion switches to the next": {
			snapshot: snap(with(active("a", 0).heartbeat(time.Minute).completed(2*time.Minute), b, last)),
			now:      2 * time.Minute,
			want:     result{States: map[string]State{"a": Completed, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"68: at 19:59 after the last heartbeat nothing switches": {
			snapshot: snap(with(active("a", 0).heartbeat(5*time.Minute), b, last)),
			now:      5*time.Minute + deadline - time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: time.Second},
		},
		"68: at 20:00 after the last heartbeat the next one has its turn": {
			snapshot: snap(with(active("a", 0).heartbeat(5*time.Minute), b, last)),
			now:      5*time.Minute + deadline,
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"68: a participant with a shorter deadline of its own is passed over then": {
			snapshot: snap(with(active("a", 0).heartbeat(5*time.Minute).within(2*time.Minute), b, last)),
			now:      7 * time.Minute,
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"68: and one with a longer deadline of its own not before": {
			snapshot: snap(with(active("a", 0).within(24*time.Hour), b, last)),
			now:      24*time.Hour - time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: time.Second},
		},
		"69: the first one that never reports is due 20 min after creation": {
			snapshot: snap(with(active("a", -time.Hour), b, last)),
			now:      deadline - time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: time.Second},
		},
		"69, R2: a late activation of the first one moves its baseline": {
			snapshot: snap(with(active("a", 15*time.Minute), b, last)),
			now:      deadline,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 15 * time.Minute},
		},
		"70: the second silent one is active from 20:00 on": {
			snapshot: snap(with(done("a", Interrupted), active("b", deadline), last)),
			now:      2*deadline - time.Second,
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: time.Second},
		},
		"70, 72: and until 40:00, then the last resort": {
			snapshot: snap(with(done("a", Interrupted), active("b", deadline), last)),
			now:      2 * deadline,
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"R2: creation is no baseline of the second one": {
			snapshot: snap(with(done("a", Completed), active("b", -time.Hour), last)),
			want:     result{States: map[string]State{"a": Completed, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"72: completion of the last custom one activates the last resort": {
			snapshot: snap(with(done("a", Completed), active("b", 0).completed(time.Minute), last)),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Completed, "b": Completed, "last": Active}, WakeIn: never},
		},
		"73: another plan after the first look has no effect": {
			snapshot: snap(with(active("a", 0), last), func(s *Snapshot) { s.Planned = []Participant{{Name: "c"}} }),
			want:     result{States: map[string]State{"a": Active, "last": Inactive}, WakeIn: deadline},
		},
		"74: completion and a due deadline together are one completion": {
			snapshot: snap(with(active("a", 0).completed(time.Minute), b, last)),
			now:      24 * time.Hour,
			want:     result{States: map[string]State{"a": Completed, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"75: after an outage the active one gets the start-up grace": {
			snapshot: snap(with(active("a", 0), b, last), func(s *Snapshot) { s.EngineStartedAt = at(3 * time.Hour) }),
			now:      3 * time.Hour,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 5 * time.Minute},
		},
		"75: one second before the end of the start-up grace it is still active": {
			snapshot: snap(with(active("a", 0), b, last), func(s *Snapshot) { s.EngineStartedAt = at(3 * time.Hour) }),
			now:      3*time.Hour + 5*time.Minute - time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: time.Second},
		},
		"75: after the start-up grace its silence counts": {
			snapshot: snap(with(active("a", 0), b, last), func(s *Snapshot) { s.EngineStartedAt = at(3 * time.Hour) }),
			now:      3*time.Hour + 5*time.Minute,
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"75: the start-up grace does not hold back a completion": {
			snapshot: snap(with(active("a", 0).completed(time.Minute), b, last), func(s *Snapshot) { s.EngineStartedAt = at(3 * time.Hour) }),
			now:      3 * time.Hour,
			want:     result{States: map[string]State{"a": Completed, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"75: the start-up grace shortens no deadline": {
			snapshot: snap(with(active("a", 0), b, last), func(s *Snapshot) { s.EngineStartedAt = t0 }),
			now:      6 * time.Minute,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 14 * time.Minute},
		},
		"75: a plan in which nobody is active goes on with the next": {
			snapshot: snap(with(done("a", Completed), b, last)),
			now:      time.Hour,
			want:     result{States: map[string]State{"a": Completed, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"the last resort is never interrupted, not even after days": {
			snapshot: snap(with(done("a", Interrupted), done("b", Interrupted), activeLast)),
			now:      72 * time.Hour,
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"a last resort that completes keeps its turn while the target lives": {
			snapshot: snap(with(done("a", Completed), activeLast.completed(time.Minute))),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Completed, "last": Active}, WakeIn: never},
		},
		// Clocks.
		"50: a heartbeat from next year counts as seen plus the skew": {
			snapshot: snap(with(Participant{Name: "a", State: Active, ActivatedAt: t0, HeartbeatAt: at(8760 * time.Hour), HeartbeatSeenAt: at(time.Minute)}, b, last)),
			now:      time.Minute + 10*time.Second + deadline - time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: time.Second},
		},
		"50: and is due like any other": {
			snapshot: snap(with(Participant{Name: "a", State: Active, ActivatedAt: t0, HeartbeatAt: at(8760 * time.Hour), HeartbeatSeenAt: at(time.Minute)}, b, last)),
			now:      time.Minute + 10*time.Second + deadline,
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: deadline},
		},
		"50: a heartbeat within the skew counts as it is": {
			snapshot: snap(with(Participant{Name: "a", State: Active, ActivatedAt: t0, HeartbeatAt: at(9 * time.Second), HeartbeatSeenAt: t0}, b, last)),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: deadline + 9*time.Second},
		},
		"50: a heartbeat never seen before is bounded by now": {
			snapshot: snap(with(Participant{Name: "a", State: Active, ActivatedAt: t0, HeartbeatAt: at(time.Hour)}, b, last)),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: deadline + 10*time.Second},
		},
		"a clock that jumps back one hour switches nothing": {
			snapshot: snap(with(active("a", 0).heartbeat(19*time.Minute), b, last)),
			now:      -41 * time.Minute,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 61 * time.Minute},
		},
		"a clock that jumps back ends nothing before the grace": {
			snapshot: snap(target(Target{Presence: Gone, EndSeenAt: t0}), with(active("a", 0), last)),
			now:      -time.Hour,
			want:     result{States: map[string]State{"a": Active, "last": Inactive}, WakeIn: 5 * time.Second},
		},
		// The end of the target: statements 90, 91, 93 and ruling R11.
		"90: a terminal target ends the request at once if nobody reports": {
			snapshot: snap(target(Target{Presence: Present, Terminal: true, EndSeenAt: t0}), with(done("a", Completed), activeLast)),
			want:     result{States: map[string]State{"a": Completed, "last": Interrupted}, Outcome: OutcomeEvicted, Cause: TargetTerminal, WakeIn: never},
		},
		"90: a target that is terminal on the first look ends the request": {
			snapshot: snap(target(Target{Presence: Present, Terminal: true})),
			want:     result{States: map[string]State{"a": Inactive, "b": Inactive, "last": Inactive}, Outcome: OutcomeEvicted, Cause: TargetTerminal, WakeIn: never},
		},
		"91: a target that went ends the request": {
			snapshot: snap(target(Target{Presence: Gone, EndSeenAt: t0}), with(done("a", Completed), activeLast)),
			want:     result{States: map[string]State{"a": Completed, "last": Interrupted}, Outcome: OutcomeEvicted, Cause: TargetDeleted, WakeIn: never},
		},
		"91: a target that was replaced ends the request": {
			snapshot: snap(target(Target{Presence: Replaced, EndSeenAt: t0}), with(done("a", Completed), activeLast)),
			want:     result{States: map[string]State{"a": Completed, "last": Interrupted}, Outcome: OutcomeEvicted, Cause: TargetDeleted, WakeIn: never},
		},
		"a target that is only being deleted ends nothing": {
			snapshot: snap(target(Target{Presence: Present, Deleting: true}), with(active("a", 0), last)),
			want:     result{States: map[string]State{"a": Active, "last": Inactive}, WakeIn: deadline},
		},
		"R11: the active one has the grace to report": {
			snapshot: snap(target(Target{Presence: Gone, EndSeenAt: t0}), with(active("a", 0), b, last)),
			now:      4 * time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: time.Second},
		},
		"R11: an end that was never seen before starts the grace now": {
			snapshot: snap(target(Target{Presence: Gone}), with(active("a", 0), b, last)),
			now:      time.Hour,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 5 * time.Second},
		},
		"R11: a report within the grace ends it": {
			snapshot: snap(target(Target{Presence: Gone, EndSeenAt: t0}), with(active("a", 0).completed(2*time.Second), b, last)),
			now:      2 * time.Second,
			want:     result{States: map[string]State{"a": Completed, "b": Inactive, "last": Inactive}, Outcome: OutcomeEvicted, Cause: TargetDeleted, WakeIn: never},
		},
		"R11: after the grace the silent one is interrupted and nobody follows": {
			snapshot: snap(target(Target{Presence: Gone, EndSeenAt: t0}), with(active("a", 0), b, last)),
			now:      5 * time.Second,
			want:     result{States: map[string]State{"a": Interrupted, "b": Inactive, "last": Inactive}, Outcome: OutcomeEvicted, Cause: TargetDeleted, WakeIn: never},
		},
		"R11: a deadline inside the grace activates nobody": {
			snapshot: snap(target(Target{Presence: Present, Terminal: true, EndSeenAt: at(time.Hour)}), with(active("a", 0), b, last)),
			now:      time.Hour + time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 4 * time.Second},
		},
		// Cancellation: statements 92, 93, 97.
		"95: the request is on its way out, so nobody gets a turn": {
			snapshot: snap(gone),
			want:     result{Outcome: OutcomeRunning, WakeIn: never},
		},
		"95: and whoever has one loses it": {
			snapshot: snap(gone, with(done("a", Completed), active("b", 0), last)),
			want:     result{States: map[string]State{"a": Completed, "b": Canceled, "last": Inactive}, Outcome: OutcomeRunning, WakeIn: never},
		},
		"95: nobody comes after the one that has lost it": {
			snapshot: snap(gone, with(done("a", Completed), done("b", Canceled), last)),
			want:     result{States: map[string]State{"a": Completed, "b": Canceled, "last": Inactive}, Outcome: OutcomeRunning, WakeIn: never},
		},
		"95: the end of the target is recorded": {
			snapshot: snap(gone, target(Target{Presence: Gone}), with(done("a", Canceled), b, last)),
			want:     result{States: map[string]State{"a": Canceled, "b": Inactive, "last": Inactive}, Outcome: OutcomeEvicted, Cause: TargetDeleted, WakeIn: never},
		},
		"95: a target that nobody has looked at before and that is not there is refused": {
			snapshot: snap(gone, target(Target{Presence: Gone})),
			want:     result{Outcome: OutcomeCanceled, Cause: TargetNotFound, WakeIn: never},
		},
		"95: an unknown target decides nothing": {
			snapshot: snap(gone, target(Target{}), with(active("a", 0), b, last)),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, Outcome: OutcomeRunning, WakeIn: never},
		},
		"92: nobody wants it, so the active one is canceled": {
			snapshot: snap(noIntents, with(done("a", Completed), active("b", 0), last)),
			want:     result{States: map[string]State{"a": Completed, "b": Canceled, "last": Inactive}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never},
		},
		"92: the last resort is canceled too": {
			snapshot: snap(noIntents, with(activeLast)),
			want:     result{States: map[string]State{"last": Canceled}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never},
		},
		"92: one that completed at that moment stays completed": {
			snapshot: snap(noIntents, with(active("a", 0).completed(0), last)),
			want:     result{States: map[string]State{"a": Completed, "last": Inactive}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never},
		},
		"92: nobody wanted it on the first look": {
			snapshot: snap(noIntents),
			want:     result{States: map[string]State{"a": Inactive, "b": Inactive, "last": Inactive}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never},
		},
		"nobody wants it, but the active one forbids to cancel": {
			snapshot: snap(noIntents, with(active("a", 0).forbids(), b, last)),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, Outcome: OutcomeRunning, WakeIn: 20 * time.Minute},
		},
		"nobody wants it, but one that is done forbade to cancel": {
			snapshot: snap(noIntents, with(active("a", 0).completed(0).forbids(), last)),
			want:     result{States: map[string]State{"a": Completed, "last": Active}, Outcome: OutcomeRunning, WakeIn: never},
		},
		"nobody wants it, and the deadline ends the turn of one that forbids to cancel": {
			snapshot: snap(noIntents, with(active("a", 0).forbids(), b, last), func(s *Snapshot) { s.Deadline = t0 }),
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, Outcome: OutcomeRunning, WakeIn: never},
		},
		"93: the end of the target comes before the cancellation": {
			snapshot: snap(noIntents, target(Target{Presence: Gone, EndSeenAt: at(-time.Minute)}), with(active("a", 0), last)),
			want:     result{States: map[string]State{"a": Interrupted, "last": Inactive}, Outcome: OutcomeEvicted, Cause: TargetDeleted, WakeIn: never},
		},
		"93: an evicted request is not canceled afterwards": {
			snapshot: snap(noIntents, with(done("a", Completed)), func(s *Snapshot) { s.Outcome, s.Cause = OutcomeEvicted, TargetDeleted }),
			want:     result{States: map[string]State{"a": Completed}, Outcome: OutcomeEvicted, Cause: TargetDeleted, WakeIn: never},
		},
		"93: a canceled request is not evicted afterwards": {
			snapshot: snap(target(Target{Presence: Gone}), with(done("a", Canceled)), func(s *Snapshot) { s.Outcome, s.Cause = OutcomeCanceled, NoIntent }),
			want:     result{States: map[string]State{"a": Canceled}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never},
		},
		"97: an intent after the cancellation revives nothing": {
			snapshot: snap(with(done("a", Canceled), b, last), func(s *Snapshot) { s.Outcome, s.Cause = OutcomeCanceled, NoIntent }),
			want:     result{States: map[string]State{"a": Canceled, "b": Inactive, "last": Inactive}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never},
		},
	})
}

// stepCase is a step at a time after t0.
type stepCase struct {
	snapshot Snapshot
	now      time.Duration
	want     result
}

func decides(t *testing.T, tests map[string]stepCase) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			now := at(tc.now)
			got := resultOf(Step(tc.snapshot, now, DefaultPolicy()), now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
