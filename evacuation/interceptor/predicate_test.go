package interceptor

import (
	"testing"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestWhatChangesATurn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*v1alpha1.EvictionRequest)
		want   bool
	}{
		"nothing":                           {func(*v1alpha1.EvictionRequest) {}, false},
		"a report":                          {func(er *v1alpha1.EvictionRequest) { er.Status.Interceptors[0].Message = "half" }, false},
		"another version":                   {func(er *v1alpha1.EvictionRequest) { er.ResourceVersion = "2" }, false},
		"another request of the name":       {func(er *v1alpha1.EvictionRequest) { er.UID = "er-2" }, true},
		"the spec":                          {func(er *v1alpha1.EvictionRequest) { er.Generation++ }, true},
		"a deletion that a finalizer holds": {func(er *v1alpha1.EvictionRequest) { er.DeletionTimestamp = &metav1.Time{Time: at(1)} }, true},
		"the node":                          {func(er *v1alpha1.EvictionRequest) { er.Status.NodeName = "other" }, true},
		"the deadline":                      {func(er *v1alpha1.EvictionRequest) { er.Status.Deadline = &metav1.Time{Time: at(1)} }, true},
		"the active interceptor":            {func(er *v1alpha1.EvictionRequest) { er.Status.ActiveInterceptors = []string{"b.example.com"} }, true},
		"who had a turn":                    {func(er *v1alpha1.EvictionRequest) { er.Status.ProcessedInterceptors = []string{"b.example.com"} }, true},
		"a condition": {func(er *v1alpha1.EvictionRequest) {
			er.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionCanceled, Status: metav1.ConditionTrue}}
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := &v1alpha1.EvictionRequest{}
			before.UID, before.Status.NodeName = "er-1", "node"
			before.Status.Interceptors = []v1alpha1.InterceptorStatus{{Name: "a.example.com"}}
			after := before.DeepCopy()
			tc.change(after)
			if got := TurnChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes %t, want %t", got, tc.want)
			}
		})
	}
}

func TestWhatChangesANativeTurn(t *testing.T) {
	t.Parallel()
	working := lifecyclev1alpha1.ResponderStateActive
	cases := map[string]struct {
		change func(*lifecyclev1alpha1.Eviction)
		want   bool
	}{
		"nothing":                           {func(*lifecyclev1alpha1.Eviction) {}, false},
		"a report":                          {beats(2), false},
		"another version":                   {func(ev *lifecyclev1alpha1.Eviction) { ev.ResourceVersion = "8" }, false},
		"another Eviction of the name":      {func(ev *lifecyclev1alpha1.Eviction) { ev.UID = "ev-2" }, true},
		"a deletion that a finalizer holds": {func(ev *lifecyclev1alpha1.Eviction) { ev.DeletionTimestamp = stamp(1) }, true},
		"a state":                           {is(1, working, 1), true},
		"a requester": {func(ev *lifecyclev1alpha1.Eviction) {
			ev.Status.Requesters = []lifecyclev1alpha1.Requester{{Name: "acme.example.com/drain", Intent: lifecyclev1alpha1.RequesterIntentEviction}}
		}, true},
		"a condition": {finally(lifecyclev1alpha1.EvictionConditionFailed), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := newEviction(is(0, working, 0))
			after := before.DeepCopy()
			tc.change(after)
			if got := TurnChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes %t, want %t", got, tc.want)
			}
		})
	}
	if TurnChanged().Update(event.UpdateEvent{ObjectOld: newEviction(), ObjectNew: &v1alpha1.EvictionRequest{}}) {
		t.Error("objects of two kinds pass")
	}
}
