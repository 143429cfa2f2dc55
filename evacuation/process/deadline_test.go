package process

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func until(deadline time.Duration) func(*Snapshot) {
	return func(s *Snapshot) { s.Deadline = at(deadline) }
}

func budget(p Participant) Participant {
	p.Unhurried = true
	return p
}

func needs(p Participant, minimum time.Duration, skips bool) Participant {
	p.Minimum, p.Skips = minimum, skips
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

// Whose turn it is, and who needs longer than the deadline leaves it.
func TestShortNotice(t *testing.T) {
	a, c := Participant{Name: "a"}, Participant{Name: "c"}
	planned := func(all ...Participant) func(*Snapshot) { return func(s *Snapshot) { s.Planned = all } }
	for name, tc := range map[string]struct {
		snapshot Snapshot
		want     map[string]State
		notices  []ShortNotice
	}{
		"there is no deadline": {snap(planned(needs(a, time.Hour, true), b, last)), map[string]State{"a": Active, "b": Inactive, "last": Inactive}, nil},
		"it fits exactly": {
			snap(planned(needs(a, time.Minute, true), b, last), until(time.Minute)),
			map[string]State{"a": Active, "b": Inactive, "last": Inactive}, nil,
		},
		"it says nothing": {snap(planned(a, b, last), until(time.Nanosecond)), map[string]State{"a": Active, "b": Inactive, "last": Inactive}, nil},
		"it does not fit, and begins nevertheless": {
			snap(planned(needs(a, 10*time.Minute, false), b, last), until(30*time.Second)),
			map[string]State{"a": Active, "b": Inactive, "last": Inactive}, []ShortNotice{{Name: "a", Needs: 10 * time.Minute, Has: 30 * time.Second}},
		},
		"it does not fit, and is skipped": {
			snap(planned(needs(a, 10*time.Minute, true), b, last), until(30*time.Second)),
			map[string]State{"a": Interrupted, "b": Active, "last": Inactive},
			[]ShortNotice{{Name: "a", Needs: 10 * time.Minute, Has: 30 * time.Second, Skipped: true}},
		},
		"so are all up to one that begins": {
			snap(with(active("x", 0).completed(0), needs(a, time.Hour, true), needs(b, time.Minute, true), needs(c, time.Minute, false), last), until(time.Second)),
			map[string]State{"x": Completed, "a": Interrupted, "b": Interrupted, "c": Active, "last": Inactive},
			[]ShortNotice{
				{Name: "a", Needs: time.Hour, Has: time.Second, Skipped: true}, {Name: "b", Needs: time.Minute, Has: time.Second, Skipped: true},
				{Name: "c", Needs: time.Minute, Has: time.Second},
			},
		},
		"and if nobody has time, the last resort follows": {
			snap(planned(needs(a, time.Hour, true), last), until(time.Second)),
			map[string]State{"a": Interrupted, "last": Active}, []ShortNotice{{Name: "a", Needs: time.Hour, Has: time.Second, Skipped: true}},
		},
		"no deadline hurries a budget": {
			snap(planned(budget(needs(a, time.Hour, true)), last), until(time.Second)), map[string]State{"a": Active, "last": Inactive}, nil,
		},
		"who has its turn keeps it": {
			snap(with(needs(active("a", 0), time.Hour, true), last), until(time.Second)), map[string]State{"a": Active, "last": Inactive}, nil,
		},
		"a deadline that has come passes over who would be skipped": {
			snap(planned(needs(a, time.Hour, true), last), until(0)), map[string]State{"a": Interrupted, "last": Active}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Step(tc.snapshot, t0, DefaultPolicy())
			if diff := cmp.Diff(tc.want, resultOf(d, t0).States); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.notices, d.ShortNotices); diff != "" {
				t.Errorf("notices (-want +got):\n%s", diff)
			}
		})
	}
}
