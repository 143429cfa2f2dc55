package builder_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func TestClonesAreIndependent(t *testing.T) {
	pod := builder.Pod("shop", "web").Label("a", "1").Ready()
	pod.Clone().Label("a", "2").Unready().Interceptors("x.example.com")
	want := builder.Pod("shop", "web").Label("a", "1").Ready().Obj()
	if diff := cmp.Diff(want, pod.Obj()); diff != "" {
		t.Errorf("a change of the clone reached the original (-want +got):\n%s", diff)
	}

	request := builder.EvictionRequest("shop", "web", "u1").Interceptors("a.example.com").Active("a.example.com", noon)
	request.Clone().Started("a.example.com", noon).Requesters("drain.example.com")
	wantRequest := builder.EvictionRequest("shop", "web", "u1").Interceptors("a.example.com").Active("a.example.com", noon).Obj()
	if diff := cmp.Diff(wantRequest, request.Obj()); diff != "" {
		t.Errorf("a change of the clone reached the original (-want +got):\n%s", diff)
	}
}

func TestWhatSettersStandFor(t *testing.T) {
	tests := map[string]struct{ got, want any }{
		"an annotation lists interceptors in order": {
			got:  builder.Pod("shop", "web").Interceptors("b.example.com", "a.example.com").Annotations,
			want: map[string]string{v1alpha1.InterceptorsAnnotation: "b.example.com,a.example.com"},
		},
		"a deleting pod has the grace period of its spec": {
			got:  builder.Pod("shop", "web").GracePeriod(7).Deleting(noon).DeletionGracePeriodSeconds,
			want: ptr.To[int64](7),
		},
		"a mirror pod belongs to its node": {
			got: builder.Pod("kube-system", "static").Node("n1").Mirror().OwnerReferences,
			want: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-of-node-n1",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		"a cordoned node has the taint as well": {
			got:  builder.Node("n1").Cordoned().Spec,
			want: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}}},
		},
		"setting a condition again replaces it": {
			got:  builder.Pod("shop", "web").Ready().Unready().Status,
			want: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: "Ready", Status: "False"}}},
		},
		"the imperative interceptor comes last": {
			got:  builder.EvictionRequest("shop", "web", "u1").Interceptors("a.example.com").Status.TargetInterceptors,
			want: []v1alpha1.Interceptor{{Name: "a.example.com"}, {Name: "imperative-eviction.k8s.io"}},
		},
		"a budget allows at its present generation": {
			got:  builder.Budget("shop", "web").Generation(3).Allows(2).Status.ObservedGeneration,
			want: int64(3),
		},
		"pods of a Deployment are built like others": {
			got: builder.Deployment("shop", "web").Pods(func(pod *builder.PodWrapper) {
				pod.Interceptors("a.example.com").Label("tier", "front").GracePeriod(5)
			}).Spec.Template.ObjectMeta,
			want: metav1.ObjectMeta{
				Labels:      map[string]string{"app": "web", "tier": "front"},
				Annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "a.example.com"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("built object differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateLeavesSelectorAlone(t *testing.T) {
	var want, got appsv1.Deployment
	want = *builder.Deployment("shop", "web").Obj()
	got = *builder.Deployment("shop", "web").Pods(func(pod *builder.PodWrapper) { pod.Label("x", "y") }).Obj()
	if diff := cmp.Diff(want.Spec.Selector, got.Spec.Selector); diff != "" {
		t.Errorf("the pods' label got into the selector (-want +got):\n%s", diff)
	}
}
