package request

import (
	"errors"
	"slices"
	"testing"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

// decides tampers with what the product decides.
func decides(tamper func(native.Situation, *native.Decision)) func(*nativeParts) {
	return func(p *nativeParts) {
		decide := p.decide
		p.decide = func(s native.Situation) native.Decision {
			d := decide(s)
			tamper(s, &d)
			return d
		}
	}
}

// nativeBugs are mistakes that somebody could make, one at least for each check.
var nativeBugs = map[string]struct {
	scope nativeScope
	seed  func(*nativeParts)
	want  error
}{
	"the evictor goes on for an Eviction that has ended": {
		scope: nativeScope{podOf: podOf{interceptors: 1}, native: true, changes: 1},
		seed: func(p *nativeParts) {
			p.turn = func(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction, awaited bool) bool {
				return evictor.IsTurnOf(er, e, awaited) || e == nil && er != nil && evictor.IsTurn(er)
			}
		},
		want: errNobodyWants,
	},
	"the evictor asks natively only": {
		scope: nativeScope{podOf: podOf{responders: 1, interceptors: 1, full: true}, legacy: true, native: true},
		seed: func(p *nativeParts) {
			p.turn = func(er *v1alpha1.EvictionRequest, _ *lifecyclev1alpha1.Eviction, _ bool) bool {
				return er != nil && er.DeletionTimestamp == nil && !v1alpha1.IsFinished(er)
			}
		},
		want: errMissedTurn,
	},
	"our responder is done before our interceptors are": {
		scope: nativeScope{podOf: podOf{interceptors: 1}, native: true},
		seed: func(p *nativeParts) {
			decides(func(s native.Situation, d *native.Decision) {
				if d.Responder != nil {
					d.Responder.CompletedAt = s.Now
				}
			})(p)
			p.turn = func(_ *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction, _ bool) bool {
				return evictor.IsTurnOf(nil, e, false)
			}
		},
		want: errMissedTurn,
	},
	"what leaves is not withdrawn natively": {
		scope: nativeScope{podOf: podOf{responders: 1}, legacy: true, changes: 1},
		seed: decides(func(_ native.Situation, d *native.Decision) {
			d.Wishes = slices.DeleteFunc(d.Wishes, func(r *lifecyclev1alpha1.EvictionRequest) bool {
				return r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentWithdrawn
			})
		}),
		want: errNobodyWants,
	},
	"our request is not joined": {
		scope: nativeScope{podOf: podOf{interceptors: 1}, native: true},
		seed:  decides(func(_ native.Situation, d *native.Decision) { d.Join = false }),
		want:  modelcheck.ErrStuck,
	},
	"the status is written again and again": {
		scope: nativeScope{podOf: podOf{responders: 1}, native: true},
		seed: decides(func(s native.Situation, d *native.Decision) {
			for _, r := range s.Requests {
				if !slices.ContainsFunc(d.RequestStatuses, func(o *lifecyclev1alpha1.EvictionRequest) bool { return o.UID == r.UID }) {
					d.RequestStatuses = append(d.RequestStatuses, r.DeepCopy())
				}
			}
		}),
		want: errEmptyWrite,
	},
	"a turn ends before anybody has said so": {
		scope: nativeScope{podOf: podOf{responders: 1}, native: true},
		seed: decides(func(_ native.Situation, d *native.Decision) {
			for _, e := range d.Statuses {
				for i := range e.Status.TargetResponders {
					if e.Status.TargetResponders[i].State == lifecyclev1alpha1.ResponderStateActive {
						e.Status.TargetResponders[i].State = lifecyclev1alpha1.ResponderStateInterrupted
					}
				}
			}
		}),
		want: errServer,
	},
	"an Eviction that begins anew does not wait for an interceptor at work": {
		scope: nativeScope{podOf: podOf{responders: 1, interceptors: 1}, legacy: true, changes: 3},
		seed: func(p *nativeParts) {
			decide := p.decide
			p.decide = func(s native.Situation) native.Decision {
				d := decide(s)
				if s.Ours != nil && len(s.Ours.Status.ActiveInterceptors) > 0 {
					s.Ours = s.Ours.DeepCopy()
					s.Ours.Status.ActiveInterceptors[0] = v1alpha1.ImperativeEvictionInterceptor
					d.Statuses = decide(s).Statuses
				}
				return d
			}
		},
		want: errTwoTurns,
	},
	"the evictor does not wait for the next Eviction": {
		scope: nativeScope{podOf: podOf{responders: 1, interceptors: 1}, legacy: true, native: true, changes: 2},
		seed: func(p *nativeParts) {
			p.turn = func(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction, _ bool) bool {
				return evictor.IsTurnOf(er, e, false)
			}
		},
		want: errMissedTurn,
	},
	"a request is not told how it ended": {
		scope: nativeScope{podOf: podOf{responders: 1}, native: true},
		seed: decides(func(s native.Situation, d *native.Decision) {
			if len(s.Evictions) > 0 {
				d.RequestStatuses = nil
			}
		}),
		want: errNoConclusion,
	},
}

func TestEveryNativeSeededBugIsFound(t *testing.T) {
	for name, bug := range nativeBugs {
		t.Run(name, func(t *testing.T) {
			p := productNativeParts()
			bug.seed(&p)
			result, err := runNative(newNativeActors(p, bug.scope.podOf), bug.scope)
			if !errors.Is(err, bug.want) {
				t.Fatalf("want %v after %d states, got %v", bug.want, result.States, err)
			}
			t.Logf("found after %d states", result.States)
		})
	}
}
