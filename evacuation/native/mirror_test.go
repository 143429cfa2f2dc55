package native

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// asksUs is our request in the turn of v1alpha1.NativeInterceptor.
func asksUs(uid types.UID, requesters ...string) *v1alpha1.EvictionRequest {
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(podUID), UID: uid}}
	er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: "web", UID: podUID}
	for _, name := range requesters {
		er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: name})
	}
	er.Status.TargetInterceptors = []v1alpha1.Interceptor{{Name: v1alpha1.NativeInterceptor}, {Name: v1alpha1.ImperativeEvictionInterceptor}}
	er.Status.ActiveInterceptors = []string{v1alpha1.NativeInterceptor}
	er.Status.Interceptors = []v1alpha1.InterceptorStatus{{Name: v1alpha1.NativeInterceptor}, {Name: v1alpha1.ImperativeEvictionInterceptor}}
	return er
}

// A native request that stands for a requester of ours wants what that wants, whatever becomes of
// our request.
func TestNative_WishesFollowOurRequest(t *testing.T) {
	const drain = "drain.example.com"
	for _, tc := range []struct {
		name string
		do   func(*world)
		want map[string]string
		// failed is why the Eviction has ended, if it has.
		failed string
	}{
		{"the requester stays", func(*world) {}, map[string]string{"drain.example.com/requester": "Eviction"}, ""},
		{"the requester leaves", func(w *world) { w.Ours = asksUs("er-1") }, map[string]string{"drain.example.com/requester": "Withdrawn"}, canceled},
		{"our request is deleted, and the garbage collector takes its time", func(w *world) { w.Ours = nil },
			map[string]string{"drain.example.com/requester": "Withdrawn"}, canceled},
		{"our request is deleted and made again by somebody else", func(w *world) { w.Ours = asksUs("er-2", "other.example.com") },
			map[string]string{"drain.example.com/requester": "Withdrawn", "other.example.com/requester": "Eviction"}, ""},
		{"all leave, but an interceptor has forbidden to cancel", func(w *world) {
			w.Ours = asksUs("er-1")
			w.Ours.Status.Interceptors[0].Cancellation = v1alpha1.CancellationForbidden
		}, map[string]string{"drain.example.com/requester": "Withdrawn", "drawbridge.dev/native": "Eviction"}, ""},
		{"somebody's own request is left alone", func(w *world) { w.wants("mine", "acme.io/mine"); w.Ours = nil },
			map[string]string{"drain.example.com/requester": "Withdrawn", "acme.io/mine": "Eviction"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, first)
			w.Ours = asksUs("er-1", drain)
			w.settle()
			tc.do(w)
			w.settle()
			got := map[string]string{}
			for _, r := range w.Requests {
				got[r.Spec.Requester] = string(r.Spec.Intent)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.failed, conclusionOf(w.Evictions[0].Status.Conditions).failed); diff != "" {
				t.Errorf("how the Eviction ended: %s", diff)
			}
		})
	}
}

// A leader whose clock is behind that of the one before it goes on with turns that begin in its
// future. The API server refuses a time before the beginning of the turn.
func TestNative_ReportsAreNotFromBeforeTheTurn(t *testing.T) {
	for name, interceptors := range map[string][]string{
		"while ours work": {v1alpha1.NativeInterceptor}, "when ours are done": {v1alpha1.NativeInterceptor, "a.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, first)
			w.Interceptors = []string{"a.example.com"}
			w.wants("wish", "drain.example.com/me")
			w.settle()
			w.completes(0, first)
			w.settle() // It is the turn of ours.
			w.Ours = asksUs("ours", v1alpha1.NativeInterceptor)
			w.Ours.Status.TargetInterceptors = []v1alpha1.Interceptor{
				{Name: v1alpha1.NativeInterceptor}, {Name: "a.example.com"}, {Name: v1alpha1.ImperativeEvictionInterceptor},
			}
			w.Ours.Status.ProcessedInterceptors = interceptors
			w.Ours.Status.ActiveInterceptors = []string{w.Ours.Status.TargetInterceptors[len(interceptors)].Name}
			w.after(-2 * time.Second)
			report := w.step().Responder
			if report == nil {
				t.Fatal("it reports nothing")
			}
			if report.HeartbeatAt.Before(began) || !report.CompletedAt.IsZero() && report.CompletedAt.Before(began) {
				t.Errorf("the turn began at %s, the report is %+v", began, report)
			}
			if done := len(interceptors) > 1; done == report.CompletedAt.IsZero() {
				t.Errorf("ours are done: %t, the report is %+v", done, report)
			}
		})
	}
}

// The same of one that finds that no interceptor of ours is left.
func TestNative_NothingIsReportedFromBeforeTheTurnIfNobodyIsLeft(t *testing.T) {
	w := newWorld(t)
	w.Interceptors = []string{"a.example.com"}
	w.wants("wish", "drain.example.com/me")
	w.settle()
	w.Interceptors = nil
	w.after(-2 * time.Second)
	if report := w.step().Responder; report == nil || report.CompletedAt.Before(began) {
		t.Errorf("the turn began at %s, the report is %+v", began, report)
	}
}
