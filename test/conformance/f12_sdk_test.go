package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F12 The contract of interceptors, kept by the SDK.
func TestConformance_F12_SDK(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: noStartupGrace})

	t.Run("109, 111 it acts in its turn alone and heartbeats while it works", func(t *testing.T) {
		w := newWorld(t, mgr)
		impl := &sdkDouble{answer: interceptor.Progress{Message: "copying"}}
		w.startSDK(t, impl)
		pod := w.pod(t, "web", interceptorA, sdkInterceptor, interceptorB)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, interceptorA)
		w.sync(t, tr.ObjectKey)
		impl.untilCalled(t)
		w.report(t, tr.ObjectKey, completes(interceptorA, w.now()))

		started := func(er *v1alpha1.EvictionRequest) bool { return v1alpha1.ReportOf(er, sdkInterceptor).StartTime != nil }
		first := v1alpha1.ReportOf(w.until(t, tr.ObjectKey, "the first heartbeat", started), sdkInterceptor)
		if !first.StartTime.Equal(first.HeartbeatTime) || first.Message != "copying" {
			t.Errorf("first report %+v, want start and heartbeat together", first)
		}
		beat := first.HeartbeatTime.Time
		for range 8 { // Longer than the deadline.
			w.advanceTo(beat.Add(3 * time.Minute))
			next := func(er *v1alpha1.EvictionRequest) bool {
				return v1alpha1.ReportOf(er, sdkInterceptor).HeartbeatTime.After(beat)
			}
			beat = v1alpha1.ReportOf(w.until(t, tr.ObjectKey, "a heartbeat", next), sdkInterceptor).HeartbeatTime.Time
		}
		w.untilActive(t, tr.ObjectKey, sdkInterceptor)

		impl.set(func(d *sdkDouble) { d.answer = interceptor.Progress{Done: true, Message: "copied"} })
		w.advanceTo(beat.Add(3 * time.Minute))
		er := w.untilActive(t, tr.ObjectKey, interceptorB)
		if item := v1alpha1.ReportOf(er, sdkInterceptor); item.Message != "copied" || !item.HeartbeatTime.Time.Equal(beat) || !item.StartTime.Equal(first.StartTime) {
			t.Errorf("last report %+v", item)
		}
		if target := impl.last(); target.PodUID != pod.UID || target.RequestUID != er.UID || !target.StartedAt.Equal(first.StartTime.Time) || target.NodeName == "" {
			t.Errorf("target %+v", target)
		}
		w.sync(t, tr.ObjectKey)
		reports := w.reported(t)
		for _, r := range reports {
			if r.Code != http.StatusOK {
				t.Errorf("a report was refused: %s", r)
			}
		}
		if len(reports) != 10 {
			t.Errorf("%d reports, want one each for the start, 8 heartbeats and the completion:\n%s", len(reports), reports)
		}
	})
	t.Run("42, 43, 111 news is reported at once, but never within a minute of the last heartbeat", func(t *testing.T) {
		w := newWorld(t, mgr)
		impl := &sdkDouble{answer: interceptor.Progress{Message: "0", CheckAfter: time.Second}}
		w.startSDK(t, impl)
		tr := w.request(t, w.pod(t, "web", sdkInterceptor))
		has := func(message string) func(*v1alpha1.EvictionRequest) bool {
			return func(er *v1alpha1.EvictionRequest) bool {
				return v1alpha1.ReportOf(er, sdkInterceptor).Message == message
			}
		}
		beat := v1alpha1.ReportOf(w.until(t, tr.ObjectKey, "the first message", has("0")), sdkInterceptor).HeartbeatTime.Time
		for i := range 3 {
			message := fmt.Sprint(i + 1)
			impl.set(func(d *sdkDouble) { d.answer.Message = message })
			before := impl.count()
			w.mgr.Clock.Advance(2 * time.Second)
			await(t, "a call within the minute", func(context.Context) error {
				if impl.count() == before {
					return errors.New("none yet")
				}
				return nil
			})
			w.advanceTo(beat.Add(61 * time.Second))
			beat = v1alpha1.ReportOf(w.until(t, tr.ObjectKey, "message "+message, has(message)), sdkInterceptor).HeartbeatTime.Time
		}
		for _, r := range w.reported(t) {
			if r.Code != http.StatusOK {
				t.Errorf("a report was refused: %s", r)
			}
		}
	})
	for name, tc := range map[string]struct {
		end func(*testing.T, *world, *corev1.Pod)
	}{
		"109 it stops at once and undoes when the request is canceled": {
			func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.withdrawAll(t, pod) },
		},
		"109 it stops at once and undoes when the request is deleted": {
			func(t *testing.T, w *world, pod *corev1.Pod) { t.Helper(); w.deleteRequest(t, pod) },
		},
		"109 it stops at once and undoes when it is passed over": {
			func(t *testing.T, w *world, pod *corev1.Pod) {
				t.Helper()
				w.advanceTo(w.now().Add(deadline + skew))
				w.untilActive(t, keyOf(pod), interceptorB)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mgr)
			impl := &sdkDouble{answer: interceptor.Progress{Message: "copying", CheckAfter: time.Second}, cancelErr: errors.New("busy")}
			w.startSDK(t, impl)
			pod := w.pod(t, "web", sdkInterceptor, interceptorB)
			tr := w.request(t, pod)
			w.until(t, tr.ObjectKey, "the first report", func(er *v1alpha1.EvictionRequest) bool {
				return v1alpha1.ReportOf(er, sdkInterceptor).StartTime != nil
			})
			impl.set(func(d *sdkDouble) { d.hang = true })
			before := impl.count()
			await(t, "a call that hangs", func(context.Context) error {
				if impl.count() == before {
					w.mgr.Clock.Advance(2 * time.Second)
					return errors.New("no call")
				}
				return nil
			})
			tc.end(t, w, pod)
			impl.untilCalled(t, "Evacuate", "Cancel")
			w.untilEvent(t, "CancelFailed")
			impl.set(func(d *sdkDouble) { d.cancelErr = nil })
			w.mgr.Clock.Advance(time.Minute)
			w.untilEvent(t, "EvacuationCanceled")
			if target := impl.last(); target.PodUID != pod.UID || target.StartedAt.IsZero() {
				t.Errorf("Cancel got %+v", target)
			}
			if reports := w.reported(t); len(reports) != 1 {
				t.Errorf("reports:\n%s\nwant only the start", reports)
			}
			for _, event := range w.sdkEvents(t) {
				if event.Reason == "EvacuationFailed" {
					t.Errorf("to be stopped is no failure: %s", event.Note)
				}
			}
			w.lives(t, pod)
		})
	}
	t.Run("109 what an old request began is undone before a new one begins", func(t *testing.T) {
		w := newWorld(t, mgr)
		impl := &sdkDouble{answer: interceptor.Progress{Message: "copying"}, cancelErr: errors.New("busy")}
		w.startSDK(t, impl)
		pod := w.pod(t, "web", sdkInterceptor)
		old := w.untilActive(t, w.request(t, pod).ObjectKey, sdkInterceptor)
		w.untilEvent(t, "EvacuationStarted")
		w.deleteRequest(t, pod)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, sdkInterceptor)
		w.untilEvent(t, "CancelFailed")
		impl.untilCalled(t, "Evacuate", "Cancel")
		impl.set(func(d *sdkDouble) { d.cancelErr = nil })
		w.mgr.Clock.Advance(time.Minute)
		er := w.until(t, tr.ObjectKey, "the new turn to begin", func(er *v1alpha1.EvictionRequest) bool {
			return v1alpha1.ReportOf(er, sdkInterceptor).StartTime != nil
		})
		impl.untilCalled(t, "Evacuate", "Cancel", "Evacuate")
		if target := impl.last(); target.RequestUID != er.UID || er.UID == old.UID {
			t.Errorf("it works for request %s, want %s (the old one was %s)", target.RequestUID, er.UID, old.UID)
		}
	})
	t.Run("109 after a restart it goes on, and undoes what was canceled meanwhile", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t) // Or the pod is evicted before anybody sees whose turn it is.
		stop := w.startSDK(t, &sdkDouble{answer: interceptor.Progress{Message: "copying"}})
		pods := map[string]*corev1.Pod{"goes-on": w.pod(t, "goes-on", sdkInterceptor), "canceled": w.pod(t, "canceled", sdkInterceptor)}
		started := map[string]metav1.Time{}
		for name, pod := range pods {
			er := w.until(t, w.request(t, pod).ObjectKey, "the first report", func(er *v1alpha1.EvictionRequest) bool {
				return v1alpha1.ReportOf(er, sdkInterceptor).StartTime != nil
			})
			started[name] = *v1alpha1.ReportOf(er, sdkInterceptor).StartTime
		}
		stop()
		w.withdrawAll(t, pods["canceled"])
		w.untilTrue(t, keyOf(pods["canceled"]), v1alpha1.ConditionCanceled)
		impl := &sdkDouble{answer: interceptor.Progress{Done: true}}
		w.startSDK(t, impl)
		w.untilActive(t, keyOf(pods["goes-on"]), imperative)
		await(t, "Cancel", func(context.Context) error {
			if !slices.Contains(impl.called(), "Cancel") {
				return errors.New("not called")
			}
			return nil
		})
		for i, target := range impl.targets {
			want := map[string]string{"goes-on": "Evacuate", "canceled": "Cancel"}[target.Pod.Name]
			if start := started[target.Pod.Name]; impl.calls[i] != want || !target.StartedAt.Equal(start.Time) {
				t.Errorf("%s of %s with start %s, want %s with %s", impl.calls[i], target.Pod.Name, target.StartedAt, want, start)
			}
		}
	})
	t.Run("110 to decline is one report, and the pod is untouched", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.startSDK(t, &sdkDouble{answer: interceptor.Progress{Done: true, Message: "not mine"}})
		pod := w.pod(t, "web", sdkInterceptor, interceptorB)
		tr := w.request(t, pod)
		er := w.untilActive(t, tr.ObjectKey, interceptorB)
		if item := v1alpha1.ReportOf(er, sdkInterceptor); item.StartTime != nil || item.CompletionTime == nil || item.Message != "not mine" {
			t.Errorf("report %+v", item)
		}
		if reports := w.reported(t); len(reports) != 1 {
			t.Errorf("reports:\n%s\nwant one", reports)
		}
		if asked := w.askedAboutPods(t); len(asked) != 0 {
			t.Errorf("it asked:\n%s", asked)
		}
		w.lives(t, pod)
	})
	t.Run("111, 112 it is silent while it fails, and says so in one event", func(t *testing.T) {
		w := newWorld(t, mgr)
		impl := &sdkDouble{err: errors.New("disk full")}
		w.startSDK(t, impl)
		pod := w.pod(t, "web", sdkInterceptor, interceptorB)
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, sdkInterceptor)
		w.untilEvent(t, "EvacuationFailed")
		for n := 1; n < 6; n++ {
			await(t, "another try", func(context.Context) error {
				w.mgr.Clock.Advance(time.Second) // The backoff is at most a minute.
				if got := impl.count(); got <= n {
					return fmt.Errorf("%d calls", got)
				}
				return nil
			})
		}
		w.advanceTo(w.now().Add(deadline + skew))
		w.untilActive(t, tr.ObjectKey, interceptorB)
		impl.untilCalled(t, "Evacuate", "Cancel")
		if reports := w.reported(t); len(reports) != 0 {
			t.Errorf("reports:\n%s\nwant none", reports)
		}
		failures := slices.DeleteFunc(w.sdkEvents(t), func(e eventsv1.Event) bool { return e.Reason != "EvacuationFailed" })
		if len(failures) != 1 {
			t.Errorf("%d events about the failure, want one that counts: %+v", len(failures), failures)
		}
	})
	t.Run("112 events regard the request and are few, however much is reported", func(t *testing.T) {
		w := newWorld(t, mgr)
		impl := &sdkDouble{answer: interceptor.Progress{Message: "0"}}
		w.startSDK(t, impl)
		tr := w.request(t, w.pod(t, "web", sdkInterceptor, interceptorB))
		var beat time.Time
		for range 5 {
			er := w.until(t, tr.ObjectKey, "a heartbeat", func(er *v1alpha1.EvictionRequest) bool {
				at := v1alpha1.ReportOf(er, sdkInterceptor).HeartbeatTime
				return at != nil && at.After(beat)
			})
			beat = v1alpha1.ReportOf(er, sdkInterceptor).HeartbeatTime.Time
			w.advanceTo(beat.Add(3 * time.Minute))
		}
		impl.set(func(d *sdkDouble) { d.answer = interceptor.Progress{Done: true, Message: "done"} })
		w.advanceTo(w.now().Add(4 * time.Minute))
		er := w.untilActive(t, tr.ObjectKey, interceptorB)
		w.untilEvent(t, "EvacuationCompleted")
		var reasons []string
		for _, event := range w.sdkEvents(t) {
			reasons = append(reasons, event.Reason)
			if r := event.Regarding; r.Kind != "EvictionRequest" || r.UID != er.UID || r.Name != er.Name {
				t.Errorf("event %s regards %+v, want the request", event.Reason, r)
			}
		}
		slices.Sort(reasons)
		if diff := cmp.Diff([]string{"EvacuationCompleted", "EvacuationStarted"}, reasons); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	t.Run("113 the SDK itself asks nothing about pods", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.startSDK(t, &sdkDouble{answer: interceptor.Progress{Done: true}})
		tr := w.request(t, w.pod(t, "web", sdkInterceptor))
		er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		if v1alpha1.ReportOf(er, sdkInterceptor).CompletionTime == nil {
			t.Errorf("status %+v", er.Status)
		}
		if asked := w.askedAboutPods(t); len(asked) != 0 {
			t.Errorf("it asked:\n%s", asked)
		}
	})
}
