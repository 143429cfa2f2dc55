package interceptor

import (
	"testing"

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
