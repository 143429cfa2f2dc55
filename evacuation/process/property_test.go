package process

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// worlds is how many random requests each property is tried on.
const worlds = 2000

// world is one request with the people around it, driven by a seeded generator.
// What it does to the snapshot is what the API admits: only the active one
// reports, completion is final, the generation rises with the intents.
type world struct {
	rand     *rand.Rand
	snapshot Snapshot
	policy   Policy
	now      time.Time
	log      []string
}

func newWorld(seed uint64) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 4563)), policy: DefaultPolicy(), now: t0}
	w.snapshot = Snapshot{Target: Target{Presence: Present}, Intents: []string{"x"}, CreatedAt: t0, Generation: 1}
	for i := range w.rand.IntN(5) {
		w.snapshot.Planned = append(w.snapshot.Planned, Participant{
			Name: fmt.Sprintf("p%d", i), HeartbeatDeadline: w.pick(0, 0, 2*time.Minute, 24*time.Hour), Unhurried: w.rand.IntN(4) == 0,
			Minimum: w.pick(0, time.Second, 10*time.Minute), Skips: w.rand.IntN(2) == 0, OnNodeLost: LostPolicy(w.rand.IntN(3)),
		})
	}
	w.snapshot.Planned = append(w.snapshot.Planned, Participant{Name: "last", LastResort: true})
	w.policy.HeartbeatDeadline = w.pick(time.Second, time.Minute, 20*time.Minute)
	w.policy.ClockSkew = w.pick(0, 10*time.Second, 30*time.Second)
	w.policy.CompletionGrace = w.pick(0, 5*time.Second)
	w.policy.StartupGrace = w.pick(0, 5*time.Minute)
	if w.rand.IntN(3) == 0 {
		w.snapshot.EngineStartedAt = t0
	}
	return w
}

func (w *world) pick(options ...time.Duration) time.Duration {
	return options[w.rand.IntN(len(options))]
}

// disturb lets one thing happen.
func (w *world) disturb() {
	s := &w.snapshot
	switch w.rand.IntN(17) {
	case 0, 1:
		w.now = w.now.Add(w.pick(time.Millisecond, time.Second, time.Minute, 20*time.Minute, 24*time.Hour))
		w.notef("time passes")
	case 2:
		w.now = w.now.Add(-w.pick(time.Second, time.Hour, 24*time.Hour))
		w.notef("the clock jumps back")
	case 3, 4:
		w.report("heartbeat", func(p *Participant) {
			p.HeartbeatAt = w.now.Add(w.pick(-time.Second, 0, 9*time.Second, 8760*time.Hour))
			p.HeartbeatSeenAt = w.now
		})
	case 5, 6:
		w.report("completion", func(p *Participant) { p.CompletedAt = w.now })
	case 7:
		s.Intents, s.Generation = nil, s.Generation+1
		w.notef("nobody wants it")
	case 8:
		s.Intents, s.Generation = append(slices.Clone(s.Intents), "y"), s.Generation+1
		w.notef("somebody wants it")
	case 9:
		s.EngineStartedAt = w.now
		w.notef("the engine restarts")
	case 10:
		s.Target = Target{Presence: Presence(1 + w.rand.IntN(3)), Terminal: w.rand.IntN(2) == 0, Deleting: w.rand.IntN(2) == 0, EndSeenAt: w.now}
		w.notef("the target is %+v", s.Target)
	case 11:
		if w.rand.IntN(3) == 0 {
			s.Target.Presence = Unknown
			w.notef("the target is unknown")
		}
	case 12:
		s.Deadline, s.Generation = w.now.Add(w.pick(-time.Hour, 0, time.Second, 10*time.Minute, 24*time.Hour)), s.Generation+1
		w.notef("the deadline is %s", s.Deadline)
	case 14:
		w.report("point of no return", func(p *Participant) { p.CancelForbidden = true })
	case 13:
		s.Deadline, s.Generation = time.Time{}, s.Generation+1
		w.notef("there is no deadline")
	case 15:
		s.LostAt = w.now.Add(w.pick(-time.Hour, 0, time.Second, time.Minute))
		w.notef("the node is lost at %s", s.LostAt)
	case 16:
		s.LostAt = time.Time{}
		w.notef("the node is back")
	}
}

func (w *world) report(what string, change func(*Participant)) {
	if i := activeIndex(w.snapshot.Participants); i >= 0 {
		w.snapshot.Participants = slices.Clone(w.snapshot.Participants)
		change(&w.snapshot.Participants[i])
		w.notef("%s of %s", what, w.snapshot.Participants[i].Name)
	}
}

// reached reports whether a deadline has come.
func reached(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

func (w *world) notef(format string, args ...any) {
	w.log = append(w.log, w.now.Format(time.RFC3339Nano)+" "+fmt.Sprintf(format, args...))
}

// explore drives random requests and shows every step to the check.
func explore(t *testing.T, check func(before Snapshot, now time.Time, p Policy, d Decision) error) {
	t.Helper()
	outcomes := map[Outcome]int{}
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		for range 30 {
			d := Step(w.snapshot, w.now, w.policy)
			w.notef("step: %v %v", d.Transitions, d.Outcome)
			if err := check(w.snapshot, w.now, w.policy, d); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(w.log, "\n"))
			}
			w.snapshot = apply(w.snapshot, d)
			w.disturb()
		}
		outcomes[w.snapshot.Outcome]++
	}
	// A generator that never gets anywhere would prove nothing.
	for _, o := range []Outcome{OutcomeRunning, OutcomeEvicted, OutcomeCanceled} {
		if outcomes[o] < worlds/50 {
			t.Errorf("only %d of %d random requests ended as %s", outcomes[o], worlds, o)
		}
	}
}

func TestProperties(t *testing.T) {
	properties := map[string]func(before Snapshot, now time.Time, p Policy, d Decision) error{
		"66: at most one is active": func(_ Snapshot, _ time.Time, _ Policy, d Decision) error {
			n := 0
			for _, p := range d.Participants {
				if p.State == Active {
					n++
				}
			}
			if n > 1 {
				return fmt.Errorf("%d are active", n)
			}
			return nil
		},
		"a final state is absorbing": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			for i, p := range before.Participants {
				if p.State.Final() && d.Participants[i] != p {
					return fmt.Errorf("%s was %s and is %s", p.Name, p.State, d.Participants[i].State)
				}
			}
			return nil
		},
		"93: an outcome is absorbing": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			if before.Outcome == OutcomeRunning {
				return nil
			}
			if d.Outcome != before.Outcome || d.Cause != before.Cause || len(d.Transitions) > 0 || !d.WakeAt.IsZero() {
				return fmt.Errorf("after %s: %+v", before.Outcome, d)
			}
			return nil
		},
		"what is past the point of no return is not canceled": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			if by := forbidding(before.Participants); before.Outcome == OutcomeRunning && d.Cause == NoIntent && by != "" {
				return fmt.Errorf("%s forbids it", by)
			}
			return nil
		},
		"nobody is active under an outcome": func(_ Snapshot, _ time.Time, _ Policy, d Decision) error {
			if i := activeIndex(d.Participants); d.Outcome != OutcomeRunning && i >= 0 {
				return fmt.Errorf("%s is active under %s", d.Participants[i].Name, d.Outcome)
			}
			return nil
		},
		"no activation in the step that ends the request": func(_ Snapshot, _ time.Time, _ Policy, d Decision) error {
			for _, tr := range d.Transitions {
				if d.Outcome != OutcomeRunning && tr.To == Active {
					return fmt.Errorf("%s was activated", tr.Name)
				}
			}
			return nil
		},
		"an outcome has its cause and no outcome has none": func(_ Snapshot, _ time.Time, _ Policy, d Decision) error {
			if (d.Outcome == OutcomeRunning) != (d.Cause == NoCause) {
				return fmt.Errorf("outcome %s, cause %s", d.Outcome, d.Cause)
			}
			return nil
		},
		"73: the plan is frozen and its order kept": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			names := func(ps []Participant) (n []string) {
				for _, p := range ps {
					n = append(n, p.Name)
				}
				return n
			}
			want := before.Participants
			if len(want) == 0 {
				want = before.Planned
			}
			if diff := gocmp.Diff(names(want), names(d.Participants)); len(d.Participants) > 0 && diff != "" {
				return fmt.Errorf("names (-want +got):\n%s", diff)
			}
			return nil
		},
		"how long it may be silent, and how long it needs, is frozen, too": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			want := before.Participants
			if len(want) == 0 {
				want = before.Planned
			}
			for i, p := range d.Participants {
				if p.HeartbeatDeadline != want[i].HeartbeatDeadline || p.Minimum != want[i].Minimum || p.Skips != want[i].Skips || p.OnNodeLost != want[i].OnNodeLost {
					return fmt.Errorf("%+v, want %+v", p, want[i])
				}
			}
			return nil
		},
		"turns come in order": func(_ Snapshot, _ time.Time, _ Policy, d Decision) error {
			waiting := ""
			for _, p := range d.Participants {
				switch {
				case p.State == Inactive:
					waiting = p.Name
				case waiting != "":
					return fmt.Errorf("%s is %s before %s had its turn", p.Name, p.State, waiting)
				}
			}
			return nil
		},
		"67: one turn ends per step, and the next begins in it, unless the deadline has come": func(_ Snapshot, _ time.Time, _ Policy, d Decision) error {
			n := len(d.Transitions)
			for _, tr := range d.Transitions {
				if tr.From == Inactive && slices.Contains(d.PassedOver, tr.Name) {
					n--
				}
			}
			for _, short := range d.ShortNotices {
				if short.Skipped {
					n--
				}
			}
			if n > 2 && !d.CutOff {
				return fmt.Errorf("%d transitions", n)
			}
			return nil
		},
		"a step on its own result at the same time changes nothing": func(before Snapshot, now time.Time, p Policy, d Decision) error {
			again := Step(apply(before, d), now, p)
			if again.Changed {
				return fmt.Errorf("again: %+v", again)
			}
			if !again.WakeAt.Equal(d.WakeAt) {
				return fmt.Errorf("wakes at %s, and again at %s", d.WakeAt, again.WakeAt)
			}
			return nil
		},
		"WakeAt lies after now": func(_ Snapshot, now time.Time, _ Policy, d Decision) error {
			if !d.WakeAt.IsZero() && !d.WakeAt.After(now) {
				return fmt.Errorf("wakes at %s, now is %s", d.WakeAt, now)
			}
			return nil
		},
		"a running custom participant always has a wake-up": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			i := activeIndex(d.Participants)
			if before.Target.Presence != Unknown && i >= 0 && !d.Participants[i].LastResort && d.WakeAt.IsZero() {
				return fmt.Errorf("%s is active and nothing wakes", d.Participants[i].Name)
			}
			return nil
		},
		"37: the observed generation never goes back": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			if d.ObservedGeneration < before.ObservedGeneration {
				return fmt.Errorf("from %d to %d", before.ObservedGeneration, d.ObservedGeneration)
			}
			return nil
		},
		"from the deadline on only a budget or the last resort has the turn, as long as somebody wants it": func(before Snapshot, now time.Time, _ Policy, d Decision) error {
			i := activeIndex(d.Participants)
			if reached(before.Deadline, now) && before.Target.Presence == Present && !before.Target.Terminal && d.Outcome == OutcomeRunning &&
				(i < 0 || !d.Participants[i].LastResort && !d.Participants[i].Unhurried) {
				return fmt.Errorf("the deadline was %s", before.Deadline)
			}
			return nil
		},
		"nobody is cut off without a deadline that has come": func(before Snapshot, now time.Time, _ Policy, d Decision) error {
			if d.CutOff && !reached(before.Deadline, now) {
				return fmt.Errorf("the deadline was %s", before.Deadline)
			}
			return nil
		},
		"the controller wakes at the deadline": func(before Snapshot, now time.Time, _ Policy, d Decision) error {
			i := activeIndex(d.Participants)
			if i >= 0 && !d.Participants[i].LastResort && !before.Target.ended() && before.Target.Presence != Unknown &&
				before.Deadline.After(now) && d.WakeAt.After(later(before.Deadline, now.Add(time.Millisecond))) {
				return fmt.Errorf("the deadline was %s, wakes at %s", before.Deadline, d.WakeAt)
			}
			return nil
		},
		"nobody is interrupted before its deadline unless the target has ended": func(before Snapshot, now time.Time, p Policy, d Decision) error {
			for _, tr := range d.Transitions {
				if tr.To != Interrupted || before.Target.ended() || reached(before.Deadline, now) || slices.Contains(d.PassedOver, tr.Name) {
					continue
				}
				if tr.From == Inactive {
					i := slices.IndexFunc(d.Participants, func(p Participant) bool { return p.Name == tr.Name })
					if p := d.Participants[i]; !p.Skips || !reached(before.Deadline, now.Add(p.Minimum-1)) {
						return fmt.Errorf("%s was skipped at %s, the deadline was %s", tr.Name, now, before.Deadline)
					}
					continue
				}
				i := activeIndex(before.Participants)
				a := before.Participants[i]
				heartbeat := a.HeartbeatAt
				if limit := a.HeartbeatSeenAt.Add(p.ClockSkew); heartbeat.After(limit) {
					heartbeat = limit
				}
				deadline := cmp.Or(before.Participants[i].HeartbeatDeadline, p.HeartbeatDeadline)
				if a.LastResort || now.Sub(a.ActivatedAt) < deadline || now.Sub(heartbeat) < deadline {
					return fmt.Errorf("%+v at %s", a, now)
				}
			}
			return nil
		},
		"who is passed over because the node is lost has asked for it": func(before Snapshot, now time.Time, _ Policy, d Decision) error {
			for _, tr := range d.Transitions {
				i := slices.IndexFunc(d.Participants, func(p Participant) bool { return p.Name == tr.Name })
				p := d.Participants[i]
				passed := slices.Contains(d.PassedOver, tr.Name)
				asked := p.OnNodeLost == LostInterrupt || p.OnNodeLost == LostSkip && tr.From == Inactive
				if passed && (tr.To != Interrupted || !reached(before.LostAt, now) || !asked || p.LastResort || p.Unhurried) {
					return fmt.Errorf("%v of %+v at %s, the node is lost at %s", tr, p, now, before.LostAt)
				}
			}
			return nil
		},
		"on a lost node only those have a turn who want one there": func(before Snapshot, now time.Time, _ Policy, d Decision) error {
			i := activeIndex(d.Participants)
			if i < 0 || !reached(before.LostAt, now) || before.Target.ended() || before.Target.Presence == Unknown || before.Withdrawn {
				return nil
			}
			a := d.Participants[i]
			begun := len(before.Participants) > 0 && before.Participants[i].State == Active
			if !a.LastResort && !a.Unhurried && (a.OnNodeLost == LostInterrupt || a.OnNodeLost == LostSkip && !begun) {
				return fmt.Errorf("%+v has the turn at %s, the node is lost at %s", a, now, before.LostAt)
			}
			return nil
		},
		"the controller wakes when the node is lost": func(before Snapshot, now time.Time, _ Policy, d Decision) error {
			if activeIndex(d.Participants) >= 0 && d.Outcome == OutcomeRunning && !before.Target.ended() && before.Target.Presence != Unknown && !before.Withdrawn &&
				before.LostAt.After(now) && (d.WakeAt.IsZero() || d.WakeAt.After(before.LostAt)) {
				return fmt.Errorf("the node is lost at %s, wakes at %s", before.LostAt, d.WakeAt)
			}
			return nil
		},
		"who begins with less than it needs has notice of that": func(before Snapshot, now time.Time, _ Policy, d Decision) error {
			for _, tr := range d.Transitions {
				i := slices.IndexFunc(d.Participants, func(p Participant) bool { return p.Name == tr.Name })
				p := d.Participants[i]
				short := !before.Deadline.IsZero() && p.Minimum > before.Deadline.Sub(now) && p.Minimum > 0 && !p.Unhurried
				noticed := slices.ContainsFunc(d.ShortNotices, func(n ShortNotice) bool { return n.Name == p.Name })
				if tr.To == Active && short != noticed {
					return fmt.Errorf("%+v at %s, the deadline is %s: %+v", p, now, before.Deadline, d.ShortNotices)
				}
			}
			return nil
		},
		"Changed says whether a write is needed": func(before Snapshot, _ time.Time, _ Policy, d Decision) error {
			after := apply(before, d)
			differs := !slices.Equal(before.Participants, after.Participants) || before.Outcome != after.Outcome ||
				before.ObservedGeneration != after.ObservedGeneration
			if differs != d.Changed {
				return fmt.Errorf("changed is %t, differs is %t", d.Changed, differs)
			}
			return nil
		},
	}
	for name, check := range properties {
		t.Run(name, func(t *testing.T) { explore(t, check) })
	}
}
