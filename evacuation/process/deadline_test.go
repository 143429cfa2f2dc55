package process

import (
	"testing"
	"time"
)

func until(deadline time.Duration) func(*Snapshot) {
	return func(s *Snapshot) { s.Deadline = at(deadline) }
}

func budget(p Participant) Participant {
	p.Unhurried = true
	return p
}

func TestTheDeadlineOfARequester(t *testing.T) {
	silence := DefaultPolicy().HeartbeatDeadline
	decides(t, map[string]stepCase{
		"before the deadline nothing changes, but it wakes": {
			snapshot: snap(with(active("a", 0), b, last), until(time.Minute)),
			now:      30 * time.Second,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: 30 * time.Second},
		},
		"silence comes before a later deadline": {
			snapshot: snap(with(active("a", 0), b, last), until(time.Hour)),
			now:      silence,
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: silence},
		},
		"at the deadline the active one is interrupted, and the rest passed over": {
			snapshot: snap(with(active("a", 0).heartbeat(59*time.Second), b, last), until(time.Minute)),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"who is done by then is done, and the rest passed over": {
			snapshot: snap(with(active("a", 0).completed(time.Minute), b, last), until(time.Minute)),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Completed, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"a deadline that is over when the request begins leaves nobody a turn": {
			snapshot: snap(until(-time.Hour)),
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"no grace after a start of ours holds a deadline up": {
			snapshot: snap(with(active("a", 0), b, last), until(time.Minute), func(s *Snapshot) { s.EngineStartedAt = at(time.Minute) }),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"at the deadline of a requester that nobody follows the request is canceled": {
			snapshot: snap(with(active("a", 0), b, last), until(time.Minute), noIntents),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Canceled, "b": Inactive, "last": Inactive}, Outcome: OutcomeCanceled, Cause: NoIntent, WakeIn: never},
		},
		"a budget keeps its turn": {
			snapshot: snap(with(budget(active("a", 0)), b, last), until(time.Minute)),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Active, "b": Inactive, "last": Inactive}, WakeIn: silence - time.Minute},
		},
		"a budget gets its turn, and who comes before it none": {
			snapshot: snap(with(active("a", 0), budget(b), last), until(time.Minute)),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Interrupted, "b": Active, "last": Inactive}, WakeIn: silence},
		},
		"who comes after it gets none when it is done": {
			snapshot: snap(with(budget(active("a", 0).completed(2*time.Minute)), b, last), until(time.Minute)),
			now:      2 * time.Minute,
			want:     result{States: map[string]State{"a": Completed, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"a silent budget is passed over, and who comes after it": {
			snapshot: snap(with(budget(active("a", 0)), b, last), until(time.Minute)),
			now:      silence,
			want:     result{States: map[string]State{"a": Interrupted, "b": Interrupted, "last": Active}, WakeIn: never},
		},
		"a plan without a last resort has no deadline": {
			snapshot: snap(with(active("a", 0), b), until(time.Minute)),
			now:      time.Minute,
			want:     result{States: map[string]State{"a": Active, "b": Inactive}, WakeIn: silence - time.Minute},
		},
	})
}
