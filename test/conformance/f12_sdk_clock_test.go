package conformance

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F12 An interceptor whose clock is wrong is heard. The manager's clock is that of
// the API server here: it is never moved.
func TestConformance_F12_SDKClock(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: noStartupGrace})
	// The offset is exact to 3 s, and whole seconds are kept.
	const near = 10 * time.Second

	for name, off := range map[string]time.Duration{
		"41, 46, 111 an interceptor whose clock is 60 s ahead reports by the API server's":  time.Minute,
		"41, 46, 111 an interceptor whose clock is 60 s behind reports by the API server's": -time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mgr)
			wrong := clock.New()
			wrong.Advance(off)
			impl := &sdkDouble{answer: interceptor.Progress{
				Message: "copying", ExpectedFinishTime: wrong.Now().Add(time.Hour), CheckAfter: 100 * time.Millisecond,
			}}
			before := w.now().Time
			w.startSDKWith(t, impl, interceptor.Options{Clock: wrong, ServerClock: &interceptor.ServerClock{}})
			tr := w.request(t, w.pod(t, "web", sdkInterceptor, interceptorB))
			started := v1alpha1.ReportOf(w.until(t, tr.ObjectKey, "the first heartbeat", func(er *v1alpha1.EvictionRequest) bool {
				return v1alpha1.ReportOf(er, sdkInterceptor).StartTime != nil
			}), sdkInterceptor)
			if started.ExpectedFinishTime == nil {
				t.Fatalf("first report %+v without the expected finish time", started)
			}
			now := w.now().Time
			for what, at := range map[string]time.Time{
				"startTime": started.StartTime.Time, "expectedFinishTime": started.ExpectedFinishTime.Add(-time.Hour),
			} {
				if at.Before(before.Add(-near)) || at.After(now.Add(near)) {
					t.Errorf("%s is %s off, want one by the API server's clock", what, at.Sub(now))
				}
			}
			impl.set(func(d *sdkDouble) { d.answer = interceptor.Progress{Done: true, Message: "copied"} })
			done := v1alpha1.ReportOf(w.untilActive(t, tr.ObjectKey, interceptorB), sdkInterceptor)
			if done.CompletionTime == nil || done.Message != "copied" || done.CompletionTime.Before(started.StartTime) {
				t.Errorf("last report %+v, after %+v", done, started)
			}
			target := impl.last()
			if late := wrong.Now().Sub(target.StartedAt); late < -near || late > w.now().Sub(before)+near {
				t.Errorf("it is told that it started %s ago, want to be told by its own clock", late)
			}
			refused := 0
			for _, r := range w.reported(t) {
				if r.Code != http.StatusOK {
					refused++
				}
			}
			if refused > 1 {
				t.Errorf("%d reports were refused, want the first one at most:\n%s", refused, w.reported(t))
			}
		})
	}
	t.Run("46, 112 an interceptor whose times stay refused says so in the request", func(t *testing.T) {
		w := newWorld(t, mgr)
		wrong := clock.New()
		wrong.Advance(-time.Minute)
		w.startSDKWith(t, &sdkDouble{answer: interceptor.Progress{Message: "copying"}}, interceptor.Options{Clock: wrong})
		tr := w.request(t, w.pod(t, "web", sdkInterceptor, interceptorB))
		item := v1alpha1.ReportOf(w.until(t, tr.ObjectKey, "a message", func(er *v1alpha1.EvictionRequest) bool {
			return v1alpha1.ReportOf(er, sdkInterceptor).Message != ""
		}), sdkInterceptor)
		for _, want := range []string{"Reports of this interceptor are refused: ", "startTime", "must be close to now"} {
			if !strings.Contains(item.Message, want) {
				t.Errorf("message %q, want %q in it", item.Message, want)
			}
		}
		if item.StartTime != nil || item.HeartbeatTime != nil {
			t.Errorf("item %+v, want no times", item)
		}
		w.untilEvent(t, "ReportRefused")
	})
}
