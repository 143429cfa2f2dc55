package request

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// Whatever others have put into the list, there is room for the outcome.
func TestThereIsRoomForOurConditions(t *testing.T) {
	conditions := func(types ...string) []metav1.Condition {
		var list []metav1.Condition
		for _, kind := range types {
			list = append(list, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
		return list
	}
	foreign := func(n int) []string {
		var types []string
		for i := range n {
			types = append(types, fmt.Sprintf("example.com/Noted%d", i))
		}
		return types
	}
	cases := map[string]struct{ have, want []metav1.Condition }{
		"none":                     {},
		"as many as there may be":  {conditions(foreign(v1alpha1.MaxForeignConditions)...), conditions(foreign(v1alpha1.MaxForeignConditions)...)},
		"a list that is full":      {conditions(foreign(v1alpha1.MaxConditions)...), conditions(foreign(v1alpha1.MaxForeignConditions)...)},
		"ours among them are kept": {conditions(append(foreign(v1alpha1.MaxConditions-1), v1alpha1.ConditionUnchecked)...), conditions(append(foreign(v1alpha1.MaxForeignConditions), v1alpha1.ConditionUnchecked)...)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, withRoom(tc.have)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}

	er := &v1alpha1.EvictionRequest{}
	er.Status.Conditions = conditions(foreign(v1alpha1.MaxConditions)...)
	encode(er, process.Decision{Outcome: process.OutcomeEvicted, Cause: process.TargetDeleted}, facts{})
	if !v1alpha1.IsFinished(er) || len(er.Status.Conditions) > v1alpha1.MaxForeignConditions+1 {
		t.Errorf("of a full list: %d conditions, finished %t", len(er.Status.Conditions), v1alpha1.IsFinished(er))
	}
}

// A final condition that is not true was not written by us. It cannot be taken back, so the
// request goes; what is true, or cannot be told, stays.
func TestARequestWithAnUntrueOutcomeGoes(t *testing.T) {
	ending := webPod().Obj()
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{Time: t0}, []string{"example.com/held"}
	other := webPod().Obj()
	other.UID = "uid-2"
	evicted := newRequest().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj
	withdrawn := newRequest().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj()
	withdrawn.Spec.Requesters = nil
	cases := map[string]struct {
		request      *v1alpha1.EvictionRequest
		live, cached *corev1.Pod
		goes         bool
	}{
		"Evicted, and the pod runs":                 {evicted(), webPod().Obj(), webPod().Obj(), true},
		"Evicted, and the pod is gone":              {evicted(), nil, nil, false},
		"Evicted, and the cache lags":               {evicted(), nil, webPod().Obj(), false},
		"Evicted, and the pod has ended":            {evicted(), webPod().Phase(corev1.PodSucceeded).Obj(), webPod().Phase(corev1.PodSucceeded).Obj(), false},
		"Evicted, and the pod is ending":            {evicted(), ending, ending, false},
		"Evicted, and another pod has its name":     {evicted(), other, other, false},
		"Canceled, and nobody wants it":             {withdrawn, webPod().Obj(), webPod().Obj(), false},
		"Canceled for want of requesters it has":    {newRequest().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj(), webPod().Obj(), webPod().Obj(), true},
		"Canceled, because it was refused":          {newRequest().Canceled(v1alpha1.ReasonValidationFailed, t0).Obj(), webPod().Obj(), webPod().Obj(), false},
		"Canceled for a reason that we do not know": {newRequest().Canceled("Because", t0).Obj(), nil, nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live, cached := []client.Object{tc.request}, []client.Object{tc.request}
			if tc.live != nil {
				live = append(live, tc.live)
			}
			if tc.cached != nil {
				cached = append(cached, tc.cached)
			}
			b := newBench(t, live...).lag(t, cached...)
			b.mustReconcile(t)
			err := b.live.Get(t.Context(), key, &v1alpha1.EvictionRequest{})
			if apierrors.IsNotFound(err) != tc.goes {
				t.Errorf("request: %v, want it gone: %t", err, tc.goes)
			}
			if told := slices.Contains(b.events.events, "EvictionRequest OutcomeUntrue"); told != tc.goes {
				t.Errorf("events %q, want it told: %t", b.events.events, tc.goes)
			}
		})
	}
}
