package request

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

// seededBug is a mistake that somebody could make, in place of one of the parts.
type seededBug struct {
	scope scope
	seed  func(p *parts)
	want  error
}

// stepAfter lets the product decide on a snapshot that was tampered with.
func stepAfter(tamper func(*process.Snapshot, *process.Policy)) func(*parts) {
	return func(p *parts) {
		step := p.step
		p.step = func(s process.Snapshot, now time.Time, policy process.Policy) process.Decision {
			s.Participants = append([]process.Participant(nil), s.Participants...)
			tamper(&s, &policy)
			return step(s, now, policy)
		}
	}
}

// stepBefore tampers with the product's decision.
func stepBefore(tamper func(*process.Decision)) func(*parts) {
	return func(p *parts) {
		step := p.step
		p.step = func(s process.Snapshot, now time.Time, policy process.Policy) process.Decision {
			d := step(s, now, policy)
			tamper(&d)
			return d
		}
	}
}

var seededBugs = map[string]seededBug{
	"the next one gets its turn while the former still has it": {
		scope: scope{custom: 1},
		seed: stepBefore(func(d *process.Decision) {
			for _, tr := range d.Transitions {
				for i := range d.Participants {
					if tr.To == process.Completed && d.Outcome == process.OutcomeRunning && d.Participants[i].Name == tr.Name {
						d.Participants[i].State = process.Active
					}
				}
			}
		}),
		want: errTwoActive,
	},
	"the evictor does not wait for the interceptors": {
		scope: scope{custom: 1},
		seed: func(p *parts) {
			p.turn = func(er *v1alpha1.EvictionRequest) bool {
				return len(er.Status.TargetInterceptors) > 0 && len(er.Spec.Requesters) > 0 && !v1alpha1.IsFinished(er)
			}
		},
		want: errTooSoon,
	},
	"heartbeats count for nothing": {
		scope: scope{custom: 1},
		seed: stepAfter(func(s *process.Snapshot, _ *process.Policy) {
			for i := range s.Participants {
				s.Participants[i].HeartbeatAt = time.Time{}
			}
		}),
		want: errTooEarly,
	},
	"a deadline counts for nothing": {
		scope: scope{custom: 1, deadlines: 1},
		seed:  stepAfter(func(s *process.Snapshot, _ *process.Policy) { s.Deadline = time.Time{} }),
		want:  errOverstays,
	},
	"a deadline comes too early": {
		scope: scope{custom: 1, deadlines: 1},
		seed: stepAfter(func(s *process.Snapshot, _ *process.Policy) {
			if !s.Deadline.IsZero() {
				s.Deadline = s.Deadline.Add(-tick)
			}
		}),
		want: errNoTurn,
	},
	"a deadline passes over who waits before it has come": {
		scope: scope{custom: 2, deadlines: 1},
		seed: stepBefore(func(d *process.Decision) {
			if i := len(d.Participants) - 2; i > 0 && d.Participants[0].State.Final() && d.Outcome == process.OutcomeRunning {
				d.Participants[i].State, d.Participants[i+1].State = process.Interrupted, process.Active
			}
		}),
		want: errNoTurn,
	},
	"nobody hears that a request may not be canceled": {
		scope: scope{custom: 1, forbids: 1, changes: 1},
		seed: stepAfter(func(s *process.Snapshot, _ *process.Policy) {
			for i := range s.Participants {
				s.Participants[i].CancelForbidden = false
			}
		}),
		want: errOutcome,
	},
	"who needs longer is skipped without a deadline": {
		scope: scope{custom: 2},
		seed: stepAfter(func(s *process.Snapshot, _ *process.Policy) {
			if s.Deadline.IsZero() {
				s.Deadline = exploreEpoch.Add(tick)
			}
		}),
		want: errNoTurn,
	},
	"there is no grace after a crash": {
		scope: scope{custom: 1, crashes: 1},
		seed:  stepAfter(func(_ *process.Snapshot, p *process.Policy) { p.StartupGrace = 0 }),
		want:  errOutage,
	},
	"a heartbeat from next year is believed": {
		scope: scope{custom: 1, lies: 1},
		seed:  stepAfter(func(_ *process.Snapshot, p *process.Policy) { p.ClockSkew = 365 * 24 * time.Hour }),
		want:  modelcheck.ErrStuck,
	},
	"nobody wakes the controller at a deadline": {
		scope: scope{custom: 1},
		seed:  stepBefore(func(d *process.Decision) { d.WakeAt = time.Time{} }),
		want:  modelcheck.ErrStuck,
	},
	"the last resort falls silent, too": {
		scope: scope{refusals: 1},
		seed: stepAfter(func(s *process.Snapshot, _ *process.Policy) {
			for i := range s.Participants {
				s.Participants[i].LastResort = false
			}
		}),
		want: modelcheck.ErrStuck,
	},
	"the last resort is done when somebody says so": {
		scope: scope{lies: 1},
		seed: stepAfter(func(s *process.Snapshot, _ *process.Policy) {
			for i := range s.Participants {
				s.Participants[i].LastResort = s.Participants[i].CompletedAt.IsZero()
			}
		}),
		want: modelcheck.ErrStuck,
	},
	"the last resort comes first": {
		scope: scope{custom: 1},
		seed: stepBefore(func(d *process.Decision) {
			for _, tr := range d.Transitions {
				for i := range d.Participants {
					if tr.To == process.Active && d.Participants[i].Name == tr.Name {
						last := len(d.Participants) - 1
						d.Participants[i].State, d.Participants[last].State = process.Inactive, process.Active
					}
				}
			}
		}),
		want: errOrder,
	},
	"the controller is deaf to changes of the pod": {
		seed: func(p *parts) { p.podEvent = func(_, _ *corev1.Pod) bool { return false } },
		want: modelcheck.ErrStuck,
	},
	"the status is written whatever has happened since": {
		scope: scope{custom: 1, changes: 1},
		seed:  func(p *parts) { p.locksVersion = false },
		want:  errFinal,
	},
	"the evictor believes its cache": {
		scope: scope{changes: 1},
		seed:  func(p *parts) { p.looksLive = false },
		want:  errNotWanted,
	},
	"an eviction goes by the name of the pod": {
		seed: func(p *parts) { p.namesUID = false },
		want: errWrongTarget,
	},
}

// What is not found here could not be found in the product either.
func TestEverySeededBugIsFound(t *testing.T) {
	for name, bug := range seededBugs {
		t.Run(name, func(t *testing.T) {
			p := productParts()
			bug.seed(&p)
			result, err := modelcheck.Run(model(p, bug.scope))
			if !errors.Is(err, bug.want) {
				t.Fatalf("want %v after %d states, got %v", bug.want, result.States, err)
			}
			t.Logf("found after %d states: %v", result.States, err)
		})
	}
}
