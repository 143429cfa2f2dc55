package surge

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// upPod is a pod of the ReplicaSet that was handed up.
func upPod(t *testing.T, set string) *corev1.Pod {
	t.Helper()
	p := pod("web-1", set)
	patch, err := handUpPatch(p, deployment(1), t0)
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(p).Build()
	if err := c.Patch(t.Context(), p, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		t.Fatal(err)
	}
	p.ResourceVersion = ""
	return p
}

func TestGiveBack(t *testing.T) {
	unseen := deployment(1)
	unseen.Generation++
	type want struct {
		Returned Returned
		Owner    string
		Hash     string
	}
	cases := map[string]struct {
		pod     *corev1.Pod
		objects []client.Object
		want    want
	}{
		"a handed-up pod goes back to its ReplicaSet": {
			upPod(t, "new"), []client.Object{deployment(1), replicaSet("new", 2, 1)}, want{ReturnedBack, "ReplicaSet", hash}},
		"a pod of a ReplicaSet that is not the current one is evicted": {
			upPod(t, "old"), []client.Object{deployment(1), replicaSet("old", 1, 0), replicaSet("new", 2, 1)}, want{Returned: ReturnedEvicted}},
		"a rollout that nobody has seen yet is waited for": {
			upPod(t, "new"), []client.Object{unseen, replicaSet("new", 2, 1)}, want{ReturnedLater, "Deployment", ""}},
		"a pod that goes with its Deployment is left": {
			upPod(t, "new"), nil, want{ReturnedNothing, "Deployment", ""}},
		"a pod that was never handed up is left": {
			pod("web-1", "new"), []client.Object{deployment(1), replicaSet("new", 2, 1)}, want{ReturnedNothing, "ReplicaSet", hash}},
		"a pod that is gone is no error": {nil, nil, want{Returned: ReturnedNothing}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(tc.objects...)
			if tc.pod != nil {
				b = b.WithObjects(tc.pod)
			}
			api := b.Build()
			returned, err := GiveBack(t.Context(), api, keyOf(ns, "web-1"))
			if err != nil {
				t.Fatal(err)
			}
			got := want{Returned: returned}
			now := &corev1.Pod{}
			if err := api.Get(t.Context(), keyOf(ns, "web-1"), now); err == nil {
				got.Hash = now.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
				got.Owner = ptr.Deref(metav1.GetControllerOf(now), metav1.OwnerReference{}).Kind
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what became of it (-want +got):\n%s", diff)
			}
		})
	}
}

// Between the look and the eviction, another pod may have taken the name.
func TestTheEvictionOfAPodMeansThisPod(t *testing.T) {
	p := upPod(t, "old")
	var got []metav1.Preconditions
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(deployment(1), replicaSet("old", 1, 0), replicaSet("new", 2, 1), p).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _, sub client.Object, _ ...client.SubResourceCreateOption) error {
				options := ptr.Deref(sub.(*policyv1.Eviction).DeleteOptions, metav1.DeleteOptions{})
				got = append(got, ptr.Deref(options.Preconditions, metav1.Preconditions{}))
				return nil
			},
		}).Build()
	if _, err := GiveBack(t.Context(), api, keyOf(ns, "web-1")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]metav1.Preconditions{{UID: &p.UID}}, got); diff != "" {
		t.Errorf("preconditions of evictions (-want +got):\n%s", diff)
	}
}
