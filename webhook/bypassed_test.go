package webhook

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestPodsEvictedWithoutTheirInterceptorsAreCounted(t *testing.T) {
	evicted := func(w *builder.PodWrapper) *corev1.Pod {
		w.Status.Conditions = append(w.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
		})
		return w.Deleting(t0).Obj()
	}
	pending := db0().Phase(corev1.PodPending)
	plainPod := db0()
	delete(plainPod.Annotations, "drawbridge.dev/interceptors")
	cases := map[string]struct {
		// there is what the call finds.
		there []client.Object
		// hit is what the eviction API finds.
		hit    *corev1.Pod
		passed time.Duration
		want   map[string]float64
	}{
		"a successor, after a call for no pod":     {nil, evicted(db0()), 0, map[string]float64{"successor": 1}},
		"a successor, after a call for its ending": {[]client.Object{db0().UID("uid-0").Finalizer("a/b").Deleting(t0).Obj()}, evicted(db0()), 0, map[string]float64{"successor": 1}},
		"a pod that began to run":                  {[]client.Object{pending.Obj()}, evicted(db0()), 0, map[string]float64{"started": 1}},
		"a pod that did not begin to run":          {[]client.Object{pending.Obj()}, evicted(pending.Clone()), 0, nil},
		"a pod that was deleted by somebody":       {nil, db0().Deleting(t0).Obj(), 0, nil},
		"a pod that nobody intercepts":             {nil, evicted(plainPod), 0, nil},
		"a pod whose interceptors are done":        {[]client.Object{er().Processed(interA, interB).Active(evictor, t0).Obj()}, evicted(db0()), 0, nil},
		"a pod that was evicted much later":        {nil, evicted(db0()), 2 * time.Minute, nil},
		"a pod that no call was let through for":   {[]client.Object{db0().Obj(), n1().Obj()}, evicted(db0()), 0, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.there...)
			w.evict()
			w.clock.Step(tc.passed)
			before := tc.hit.DeepCopy()
			before.DeletionTimestamp = nil
			w.handler.Bypassed().OnUpdate(before, tc.hit)
			w.handler.Bypassed().OnUpdate(tc.hit, tc.hit) // What is ending is not counted again.
			got := w.counter("drawbridge_evictions_past_interceptors_total")
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}
