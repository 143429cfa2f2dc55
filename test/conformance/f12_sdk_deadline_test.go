package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// What the SDK tells an interceptor of those who do not wait.
func TestTheSDKTellsOfDeadlines(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: noStartupGrace})

	t.Run("who waits for the turn is told to save when a requester does not wait", func(t *testing.T) {
		w := newWorld(t, mgr)
		saved := make(chan interceptor.Target, 10)
		w.startSDKWith(t, &sdkDouble{}, interceptor.Options{Clock: mgr.Clock, Save: func(_ context.Context, target interceptor.Target) error {
			saved <- target
			return nil
		}})
		pod := w.pod(t, "web", interceptorA, sdkInterceptor)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.updateSpec(t, tr.ObjectKey, func(er *v1alpha1.EvictionRequest) {
			er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: "hard.example.com", Type: v1alpha1.RequesterHard})
		})
		waiting.Eventually(t, "a call of Save", func(context.Context) error {
			select {
			case target := <-saved:
				if target.PodUID != pod.UID || target.Deadline.IsZero() {
					return waiting.InVain(errors.New("it was about " + target.Pod.String() + " until " + target.Deadline.String()))
				}
				return nil
			default:
				return errors.New("none")
			}
		})
	})
	t.Run("a deadline that moves in the turn is told at once", func(t *testing.T) {
		w := newWorld(t, mgr)
		impl := &sdkDouble{answer: interceptor.Progress{Message: "copying"}}
		w.startSDK(t, impl)
		tr := w.request(t, w.pod(t, "web", sdkInterceptor))
		w.untilActive(t, tr.ObjectKey, sdkInterceptor)
		impl.untilCalled(t, "Evacuate")
		for _, in := range []time.Duration{2 * time.Hour, time.Hour} {
			w.updateSpec(t, tr.ObjectKey, func(er *v1alpha1.EvictionRequest) { er.Spec.Requesters[0].Deadline = w.in(in) })
			er := w.until(t, tr.ObjectKey, "another deadline", func(er *v1alpha1.EvictionRequest) bool {
				return er.Status.Deadline != nil && er.Status.Deadline.After(w.now().Add(in-time.Hour/2)) && !er.Status.Deadline.After(w.now().Add(in))
			})
			waiting.Eventually(t, "the interceptor to know of it", func(context.Context) error {
				if got := impl.last().Deadline; !got.Equal(er.Status.Deadline.Time) {
					return errors.New("it knows " + got.String() + ", and the request says " + er.Status.Deadline.String())
				}
				return nil
			})
		}
	})
}
