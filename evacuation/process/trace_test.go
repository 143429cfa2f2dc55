package process

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// apply makes the snapshot that the next step sees.
func apply(s Snapshot, d Decision) Snapshot {
	s.Participants = slices.Clone(d.Participants)
	s.Outcome, s.Cause, s.ObservedGeneration = d.Outcome, d.Cause, d.ObservedGeneration
	return s
}

// Statement 71: heartbeats less than 20 minutes apart keep a participant active
// without any total limit.
func TestHeartbeatsKeepAParticipantActiveForADay(t *testing.T) {
	s := snap()
	s = apply(s, Step(s, t0, DefaultPolicy()))
	for d := time.Duration(0); d <= 24*time.Hour; d += 19 * time.Minute {
		s.Participants[0] = s.Participants[0].heartbeat(d)
		decision := Step(s, at(d+19*time.Minute), DefaultPolicy())
		if len(decision.Transitions) != 0 {
			t.Fatalf("19 min after the heartbeat at %s: got transitions %v, want none", d, decision.Transitions)
		}
		s = apply(s, decision)
	}
}

// A whole request in which everybody is silent: only WakeAt moves the time, so a
// wake-up that is missing or wrong stalls it.
func TestSilentParticipantsAreSwitchedByWakeAtAlone(t *testing.T) {
	var trace []string
	s, now := snap(), t0
	for range 10 {
		d := Step(s, now, DefaultPolicy())
		for _, tr := range d.Transitions {
			trace = append(trace, fmt.Sprintf("%s %s: %s to %s", now.Sub(t0), tr.Name, tr.From, tr.To))
		}
		s = apply(s, d)
		if d.WakeAt.IsZero() {
			break
		}
		now = d.WakeAt
	}
	want := []string{
		"0s a: Inactive to Active",
		"20m0s a: Active to Interrupted",
		"20m0s b: Inactive to Active",
		"40m0s b: Active to Interrupted",
		"40m0s last: Inactive to Active",
	}
	if diff := cmp.Diff(want, trace); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

// Statement 37: the observed generation follows, and never goes back.
func TestObservedGeneration(t *testing.T) {
	tests := map[string]struct {
		snapshot Snapshot
		want     int64
		changed  bool
	}{
		"follows while running": {
			snapshot: snap(with(active("a", 0), last), func(s *Snapshot) { s.Generation, s.ObservedGeneration = 3, 2 }),
			want:     3, changed: true,
		},
		"follows after the outcome": {
			snapshot: snap(with(done("a", Canceled)), func(s *Snapshot) { s.Outcome, s.Generation, s.ObservedGeneration = OutcomeCanceled, 3, 2 }),
			want:     3, changed: true,
		},
		"stays when nothing is new": {
			snapshot: snap(with(active("a", 0), last), func(s *Snapshot) { s.Generation, s.ObservedGeneration = 3, 3 }),
			want:     3,
		},
		"does not go back": {
			snapshot: snap(with(active("a", 0), last), func(s *Snapshot) { s.Generation, s.ObservedGeneration = 2, 3 }),
			want:     3,
		},
		"stays as long as the target is unknown": {
			snapshot: snap(target(Target{}), func(s *Snapshot) { s.Generation, s.ObservedGeneration = 3, 2 }),
			want:     2,
		},
		"follows during the grace at the end": {
			snapshot: snap(target(Target{Presence: Gone}), with(active("a", 0), last), func(s *Snapshot) { s.Generation, s.ObservedGeneration = 3, 2 }),
			want:     3, changed: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := Step(tc.snapshot, t0, DefaultPolicy())
			if d.ObservedGeneration != tc.want || d.Changed != tc.changed {
				t.Errorf("got generation %d, changed %t; want %d, %t", d.ObservedGeneration, d.Changed, tc.want, tc.changed)
			}
		})
	}
}

// The snapshot belongs to the caller: gather may keep it.
func TestStepDoesNotWriteToItsSnapshot(t *testing.T) {
	s := snap(with(active("a", 0), b, last))
	want := slices.Clone(s.Participants)
	Step(s, at(time.Hour), DefaultPolicy())
	if diff := cmp.Diff(want, s.Participants); diff != "" {
		t.Errorf("participants of the snapshot (-want +got):\n%s", diff)
	}
}
