package evictor

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestEvictPodEvents(t *testing.T) {
	t.Parallel()
	deleting := func(finalizers ...string) *corev1.Pod {
		w := ourPod()
		for _, f := range finalizers {
			w.Finalizer(f)
		}
		return w.Deleting(at(0)).Obj()
	}
	cases := map[string]struct {
		before, after *corev1.Pod
		want          bool
	}{
		"nothing that matters changes":                {ourPod().Obj(), ourPod().Annotation("a", "b").Obj(), false},
		"it begins to end":                            {ourPod().Obj(), deleting(), true},
		"its labels change":                           {ourPod().Obj(), ourPod().Label("tier", "db").Obj(), true},
		"it ends":                                     {ourPod().Obj(), ourPod().Phase(corev1.PodFailed).Obj(), true},
		"one that ends loses a finalizer":             {deleting("a/b", "c/d"), deleting("c/d"), true},
		"one that ends keeps its finalizer":           {deleting("a/b"), deleting("a/b"), false},
		"one that does not end gets a finalizer more": {ourPod().Obj(), ourPod().Finalizer("a/b").Obj(), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := podEvents().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("the evictor hears of it: %t, want %t", got, tc.want)
			}
		})
	}
}
