package native

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
)

// A pod may name the responder of ours itself, or a policy has: it has one turn, at the place
// that it was given.
func TestNative_ThePodNamesOurs(t *testing.T) {
	ours := func(priority int32) lifecyclev1alpha1.TargetResponder {
		return lifecyclev1alpha1.TargetResponder{Name: v1alpha1.NativeResponder, Priority: new(priority)}
	}
	var nine []string
	for i := range v1alpha1.MaxNativeResponders - 1 {
		nine = append(nine, fmt.Sprintf("r%d.example.com/work", i))
	}
	for _, tc := range []struct {
		name         string
		responders   []string
		own          []lifecyclev1alpha1.TargetResponder
		interceptors []string
		want         string
	}{
		{"it has interceptors, too", []string{first}, []lifecyclev1alpha1.TargetResponder{ours(1000)}, []string{"a.example.com"}, "first ours evictor"},
		{"it has none, so it is asked in vain", []string{first}, []lifecyclev1alpha1.TargetResponder{ours(1000)}, nil, "first ours evictor"},
		{"it wants ours first", []string{first}, []lifecyclev1alpha1.TargetResponder{ours(20000)}, []string{"a.example.com"}, "ours first evictor"},
		{"it names no more", nil, []lifecyclev1alpha1.TargetResponder{ours(1000)}, []string{"a.example.com"}, "ours evictor"},
		{"it is the tenth", nine, []lifecyclev1alpha1.TargetResponder{ours(1000)}, []string{"a.example.com"},
			strings.Join(nine, " ") + " ours evictor"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.responders...)
			w.Responders = append(w.Responders, tc.own...)
			w.Interceptors = tc.interceptors
			w.wants("drain", "drain.example.com/me")
			w.settle()
			got := strings.NewReplacer("acme.example.com/", "", "drawbridge.dev/interceptors", "ours", theEvictor, "evictor",
				"=Inactive", "", "=Active", "", "pod-1-web: ", "", runs, "").Replace(w.says(0))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// Nobody has to wait for interceptors that are not there, whoever is in charge, and no request of
// ours is made for them.
func TestNative_NoInterceptorIsThere(t *testing.T) {
	for _, inCharge := range []bool{true, false} {
		t.Run(fmt.Sprintf("ours are in charge: %t", inCharge), func(t *testing.T) {
			w := newWorld(t)
			w.Responders = []lifecyclev1alpha1.TargetResponder{{Name: v1alpha1.NativeResponder, Priority: new(int32(1000))}}
			w.wants("drain", "drain.example.com/me")
			w.settle()
			w.InCharge = inCharge
			d := w.step()
			if d.Join || d.Responder == nil || !d.Responder.CompletedAt.Equal(w.Now) {
				t.Errorf("decision: %+v", d)
			}
			w.completes(0, v1alpha1.NativeResponder)
			if d := w.step(); d.Join || d.Responder != nil {
				t.Errorf("after that: %+v", d)
			}
		})
	}
}

// Controllers of the cluster's have made an Eviction without a turn for ours, because the pod could
// not name it: ours begin when their evictor does.
func TestNative_TheirEvictionHasNoTurnForOurs(t *testing.T) {
	for _, tc := range []struct {
		name         string
		by           string
		interceptors []string
		completed    bool
		want         bool
	}{
		{"their evictor has the turn", "evictionrequest-controller", []string{"a.example.com"}, true, true},
		{"a responder has the turn", "evictionrequest-controller", []string{"a.example.com"}, false, false},
		{"no interceptor is there", "evictionrequest-controller", nil, true, false},
		{"the Eviction is ours, whose plan counts", charge.Manager, []string{"a.example.com"}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, first)
			w.wants("drain", "drain.example.com/me")
			w.settle()
			if tc.completed {
				w.completes(0, first)
				w.settle()
			}
			e := w.Evictions[0].DeepCopy()
			e.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: tc.by, Subresource: "status", Time: new(metav1.NewTime(began)), FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`),
			}}
			w.Evictions[0], w.InCharge, w.Interceptors = e, false, tc.interceptors
			if d := w.step(); d.Join != tc.want {
				t.Errorf("our request is asked for: %t, want %t", d.Join, tc.want)
			}
		})
	}
}
