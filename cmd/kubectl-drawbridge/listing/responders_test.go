package listing_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestRespondersInTheirOrder(t *testing.T) {
	responder := func(name string, priority int32) corev1.EvictionResponder {
		return corev1.EvictionResponder{Name: name, Priority: &priority}
	}
	cases := map[string]struct {
		responders []corev1.EvictionResponder
		want       []string
	}{
		"none":                             {},
		"the higher priority first":        {[]corev1.EvictionResponder{responder("a.x/a", 1000), responder("b.x/a", 1001)}, []string{"b.x/a", "a.x/a"}},
		"then the top of the domain":       {[]corev1.EvictionResponder{responder("a.org/a", 1000), responder("b.com/a", 1000)}, []string{"b.com/a", "a.org/a"}},
		"then the rest of it":              {[]corev1.EvictionResponder{responder("a.b.com/a", 1000), responder("z.a.com/a", 1000)}, []string{"z.a.com/a", "a.b.com/a"}},
		"the shorter one of two":           {[]corev1.EvictionResponder{responder("a.b.com/a", 1000), responder("b.com/z", 1000)}, []string{"b.com/z", "a.b.com/a"}},
		"label by label, not by character": {[]corev1.EvictionResponder{responder("a.b-c.com/a", 1000), responder("z.b.com/a", 1000)}, []string{"z.b.com/a", "a.b-c.com/a"}},
		"then the key":                     {[]corev1.EvictionResponder{responder("a.x/b", 1000), responder("a.x/a", 1000)}, []string{"a.x/a", "a.x/b"}},
		"one without a priority":           {[]corev1.EvictionResponder{{Name: "a.x/a"}, responder("a.x/b", 1000)}, []string{"a.x/b", "a.x/a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := builder.Pod("shop", "p").Obj()
			pod.Spec.EvictionResponders = tc.responders
			before := pod.DeepCopy()
			if diff := cmp.Diff(tc.want, listing.Responders(pod)); diff != "" {
				t.Errorf("responders (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithResponders(t *testing.T) {
	plain := builder.Pod("shop", "p")
	native := plain.Clone().Responders("b.example.com/b", "a.example.com/a")
	for name, tc := range map[string]struct {
		interceptor string
		pod         *builder.PodWrapper
		want        string
	}{
		"another interceptor":                   {"a.example.com", native, "a.example.com"},
		"native responders":                     {v1alpha1.NativeInterceptor, native, "native.drawbridge.dev (a.example.com/a, b.example.com/b)"},
		"a pod that has none, of the same name": {v1alpha1.NativeInterceptor, plain, "native.drawbridge.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := listing.WithResponders(tc.interceptor, tc.pod.Obj()); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Nobody registers them, so what is said of names without a registration would be wrong.
func TestNativeRespondersAndTheOrderAreBuiltIn(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	er := builder.EvictionRequest("shop", "p", "uid").Requesters("r.example.com").Interceptors(v1alpha1.NativeInterceptor, v1alpha1.OrderInterceptor, "a.example.com").Active(v1alpha1.NativeInterceptor, now).Obj()
	got := listing.Interceptors(nil, nil, nil, []v1alpha1.EvictionRequest{*er})
	want := []listing.Interceptor{
		{Name: v1alpha1.NativeInterceptor, Native: true, Registered: true, Accepted: "True", Active: 1},
		{Name: v1alpha1.OrderInterceptor, Order: true, Registered: true, Accepted: "True", Waiting: 1},
		{Name: "a.example.com", Waiting: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interceptors (-want +got):\n%s", diff)
	}
}
