package controllers_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func at(seconds int) time.Time {
	return time.Date(2026, 5, 4, 12, 0, seconds, 0, time.UTC)
}

func newRequest() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("a.example.com").Interceptors("i.example.com")
}

// withdrawn makes a request one that was deleted and is held by a finalizer.
func withdrawn(w *builder.EvictionRequestWrapper) *builder.EvictionRequestWrapper {
	w.Finalizers, w.DeletionTimestamp = []string{"hold.example.com/it"}, &metav1.Time{Time: at(0)}
	return w
}

func TestWhichRequestsRun(t *testing.T) {
	t.Parallel()
	request := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("a.example.com")
	}
	intercepted := func() *builder.EvictionRequestWrapper { return request().Interceptors("i.example.com") }
	plain := func() *builder.EvictionRequestWrapper { return request().Interceptors() }
	cases := map[string]struct {
		request          *builder.EvictionRequestWrapper
		running, lasting bool
	}{
		"not yet looked at":            {request(), true, false},
		"intercepted":                  {intercepted(), true, true},
		"at its last stage":            {intercepted().Processed("i.example.com").Active(v1alpha1.ImperativeEvictionInterceptor, at(0)), true, true},
		"nobody intercepts it":         {plain().Active(v1alpha1.ImperativeEvictionInterceptor, at(0)), true, false},
		"and a budget has refused it":  {plain().Report(v1alpha1.ImperativeEvictionInterceptor, func(s *v1alpha1.InterceptorStatus) { s.Retries = 1 }), true, true},
		"canceled":                     {intercepted().Canceled(v1alpha1.ReasonNoRequesters, at(0)), false, true},
		"ended":                        {intercepted().Evicted(v1alpha1.ReasonPodTerminal, at(0)), false, true},
		"of an earlier pod":            {builder.EvictionRequest("shop", "web-1", "uid-0").Interceptors("i.example.com"), false, true},
		"withdrawn, held by finalizer": {withdrawn(intercepted()), false, true},
	}
	pod := builder.Pod("shop", "web-1").UID("uid-1").Obj()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := controllers.RunsFor(tc.request.Obj(), pod); got != tc.running {
				t.Errorf("running: want %t, got %t", tc.running, got)
			}
			if got := controllers.Lasting(tc.request.Obj()); got != tc.lasting {
				t.Errorf("lasting: want %t, got %t", tc.lasting, got)
			}
		})
	}
}

func TestEventsOfRunningRequests(t *testing.T) {
	t.Parallel()
	fresh := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("a.example.com")
	}
	cases := map[string]struct {
		before, after *builder.EvictionRequestWrapper
		want          bool
	}{
		"its interceptors are known":      {fresh(), newRequest(), true},
		"nobody intercepts it":            {fresh(), fresh().Interceptors(), false},
		"a heartbeat":                     {newRequest(), newRequest().Heartbeat("i.example.com", at(60)), false},
		"canceled":                        {newRequest(), newRequest().Canceled(v1alpha1.ReasonNoRequesters, at(0)), true},
		"ended":                           {newRequest(), newRequest().Evicted(v1alpha1.ReasonPodTerminal, at(0)), true},
		"withdrawn, but for a finalizer":  {newRequest(), withdrawn(newRequest()), true},
		"another requester comes":         {newRequest(), newRequest().Requesters("b.example.com"), false},
		"a budget has refused the last":   {fresh().Interceptors(), fresh().Interceptors().Report(v1alpha1.ImperativeEvictionInterceptor, func(s *v1alpha1.InterceptorStatus) { s.Retries = 1 }), true},
		"a budget has refused it, anyway": {newRequest(), newRequest().Report(v1alpha1.ImperativeEvictionInterceptor, func(s *v1alpha1.InterceptorStatus) { s.Retries = 1 }), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := controllers.RunningEvents().Update(event.UpdateEvent{ObjectOld: tc.before.Obj(), ObjectNew: tc.after.Obj()}); got != tc.want {
				t.Errorf("passes: want %t, got %t", tc.want, got)
			}
		})
	}
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "web-1"}}}
	if diff := cmp.Diff(want, controllers.PodOfRequest(t.Context(), newRequest().Obj())); diff != "" {
		t.Errorf("pod of a request (-want +got):\n%s", diff)
	}
}
