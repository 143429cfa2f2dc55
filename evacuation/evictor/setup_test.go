package evictor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestSetupNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	err := (&Reconciler{Policy: DefaultPolicy()}).SetupWithManager(nil)
	if err == nil {
		t.Fatal("got no error")
	}
	want := "controller imperative-eviction: " + strings.Join([]string{"APIReader is not set", "Client is not set", "Clock is not set", "Failures is not set", "Guarded is not set", "Metrics is not set", "Recorder is not set", "Synced is not set"}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
