package pods_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// answers are those of all predicates about one pod.
type answers struct{ Ended, Mirror, OfDaemonSet, Stays bool }

func TestPredicates(t *testing.T) {
	controlledBy := func(kind string, controller bool) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: &controller}}}
	}
	cases := map[string]struct {
		pod  corev1.Pod
		want answers
	}{
		"an empty pod":                        {},
		"a running pod":                       {pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}},
		"a pod whose node is not heard of":    {pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodUnknown}}},
		"a pod that succeeded":                {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, answers{Ended: true}},
		"a pod that failed":                   {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, answers{Ended: true}},
		"a mirror pod":                        {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: ""}}}, answers{Mirror: true, Stays: true}},
		"a pod of a DaemonSet":                {corev1.Pod{ObjectMeta: controlledBy("DaemonSet", true)}, answers{OfDaemonSet: true, Stays: true}},
		"owned by a DaemonSet, not as by one": {pod: corev1.Pod{ObjectMeta: controlledBy("DaemonSet", false)}},
		"a pod of a ReplicaSet":               {pod: corev1.Pod{ObjectMeta: controlledBy("ReplicaSet", true)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := answers{pods.HasEnded(&tc.pod), pods.IsMirror(&tc.pod), pods.IsOfDaemonSet(&tc.pod), pods.StaysOnNode(&tc.pod)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeletionChanged(t *testing.T) {
	at := func(seconds int64) *corev1.Pod {
		deleted := metav1.NewTime(time.Unix(seconds, 0))
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}}
	}
	alive := &corev1.Pod{}
	cases := map[string]struct {
		before, after *corev1.Pod
		want          bool
	}{
		"alive":        {alive, alive, false},
		"deleted now":  {alive, at(60), true},
		"no change":    {at(60), at(60), false},
		"made shorter": {at(60), at(30), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := pods.DeletionChanged(tc.before, tc.after); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
