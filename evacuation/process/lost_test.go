package process

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lostAt says from when on the node is lost.
func lostAt(since time.Duration) func(*Snapshot) {
	return func(s *Snapshot) { s.LostAt = at(since) }
}

func onNodeLost(p Participant, policy LostPolicy) Participant {
	p.OnNodeLost = policy
	return p
}

func TestTheNodeOfTheTargetIsLost(t *testing.T) {
	const silence = 20 * time.Minute
	skips, ends := onNodeLost(Participant{Name: "a"}, LostSkip), onNodeLost(Participant{Name: "a"}, LostInterrupt)
	planned := func(all ...Participant) func(*Snapshot) { return func(s *Snapshot) { s.Planned = all } }
	begun := func(policy LostPolicy) Participant { return onNodeLost(active("a", 0), policy) }
	for name, tc := range map[string]struct {
		snapshot   Snapshot
		now        time.Duration
		want       result
		passedOver []string
		lost       bool
	}{
		"who waits begins nevertheless": {
			snapshot: snap(lostAt(0)),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: silence}, lost: true,
		},
		"who waits keeps its turn": {
			snapshot: snap(with(begun(LostWait), b, last), lostAt(0)),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: silence}, lost: true,
		},
		"who skips gets no turn, and the next one begins": {
			snapshot: snap(planned(skips, b, last), lostAt(0)),
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: silence}, passedOver: []string{"a"}, lost: true,
		},
		"who would be interrupted gets none either": {
			snapshot: snap(planned(ends, b, last), lostAt(0)),
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: silence}, passedOver: []string{"a"}, lost: true,
		},
		"who skips keeps a turn that has begun": {
			snapshot: snap(with(begun(LostSkip), b, last), lostAt(0)),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: silence}, lost: true,
		},
		"and loses it by silence": {
			snapshot: snap(with(begun(LostSkip), onNodeLost(b, LostSkip), last), lostAt(0)), now: silence,
			want: result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never}, passedOver: []string{"b"}, lost: true,
		},
		"who is interrupted loses a turn that has begun, and the next one that waits begins": {
			snapshot: snap(with(begun(LostInterrupt), onNodeLost(b, LostSkip), Participant{Name: "c"}, last), lostAt(0)),
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "c": Active, "last": Inactive}, WakeIn: silence}, passedOver: []string{"a", "b"}, lost: true,
		},
		"who is done is done": {
			snapshot: snap(with(begun(LostInterrupt).completed(0), b, last), lostAt(0)),
			want:     result{States: map[string]State{"a": Completed, "b": Active, "last": Inactive}, WakeIn: silence}, lost: true,
		},
		"before that nothing changes, but it wakes": {
			snapshot: snap(with(begun(LostInterrupt), b, last), lostAt(time.Minute)), now: 20 * time.Second,
			want: result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 40 * time.Second},
		},
		"it wakes also for the last resort, to say so": {
			snapshot: snap(with(activeLast), lostAt(time.Minute)),
			want:     result{States: map[string]State{"last": Active}, WakeIn: time.Minute},
		},
		"the last resort keeps its turn": {
			snapshot: snap(with(onNodeLost(activeLast, LostInterrupt)), lostAt(0)),
			want:     result{States: map[string]State{"last": Active}, WakeIn: never}, lost: true,
		},
		"and so does a budget": {
			snapshot: snap(with(budget(begun(LostInterrupt)), last), lostAt(0)),
			want:     result{States: map[string]State{"a": Active, "last": Inactive}, WakeIn: silence}, lost: true,
		},
		"at a deadline the rest is passed over because of that": {
			snapshot: snap(with(begun(LostInterrupt), onNodeLost(b, LostSkip), last), lostAt(0), until(time.Minute)), now: time.Minute,
			want: result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never}, lost: true,
		},
		"nobody is short of time who is passed over": {
			snapshot: snap(planned(needs(skips, time.Hour, false), last), lostAt(0), until(time.Minute)),
			want:     result{States: map[string]State{"a": Interrupted, "last": Active}, WakeIn: never}, passedOver: []string{"a"}, lost: true,
		},
		"what nobody wants any more is canceled": {
			snapshot: snap(with(begun(LostInterrupt), b, last), lostAt(0), noIntents),
			want:     result{States: map[string]State{"a": Canceled, "b": Inactive, "last": Inactive}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never}, lost: true,
		},
		"the end of the target comes first": {
			snapshot: snap(with(begun(LostInterrupt), b, last), lostAt(0), target(Target{Presence: Gone})),
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: DefaultPolicy().CompletionGrace},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Step(tc.snapshot, at(tc.now), DefaultPolicy())
			if diff := cmp.Diff(tc.want, resultOf(d, at(tc.now))); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.passedOver, d.PassedOver); diff != "" {
				t.Errorf("passed over (-want +got):\n%s", diff)
			}
			if d.Lost != tc.lost {
				t.Errorf("lost: %t", d.Lost)
			}
		})
	}
}

// Once the node is back, nobody is passed over any more, but who was stays so.
func TestTheNodeComesBack(t *testing.T) {
	s := snap(lostAt(0), func(s *Snapshot) {
		s.Planned = []Participant{onNodeLost(Participant{Name: "a"}, LostSkip), {Name: "b"}, onNodeLost(Participant{Name: "c"}, LostSkip), last}
	})
	s = apply(s, Step(s, t0, DefaultPolicy()))
	s.LostAt = time.Time{}
	s.Participants[1] = s.Participants[1].completed(time.Minute)
	d := Step(s, at(time.Minute), DefaultPolicy())
	want := map[string]State{"a": Interrupted, "b": Completed, "c": Active, "last": Inactive}
	if diff := cmp.Diff(want, resultOf(d, at(time.Minute)).States); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}
