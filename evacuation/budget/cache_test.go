package budget

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// transformOf is what the informer of a kind does to an object.
func transformOf(t *testing.T, obj client.Object) toolscache.TransformFunc {
	t.Helper()
	for kind, options := range CacheOptions() {
		if fmt.Sprintf("%T", kind) == fmt.Sprintf("%T", obj) {
			return options.Transform
		}
	}
	t.Fatalf("there are no options for %T", obj)
	return nil
}

func TestTheInformersKeepWhatBudgetsNeed(t *testing.T) {
	deleted := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Ring", Name: "ingester", UID: "ring", Controller: new(true)}
	kept := metav1.ObjectMeta{
		Namespace: "shop", Name: "db", UID: "1", ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{owner}, DeletionTimestamp: &deleted,
	}
	full := *kept.DeepCopy()
	full.Labels, full.Annotations = map[string]string{"app": "db"}, map[string]string{"note": "long"}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	selector := &metav1.LabelSelector{MatchLabels: full.Labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: full.Labels}}
	cases := map[string]struct{ full, want client.Object }{
		"a StatefulSet": {
			&appsv1.StatefulSet{ObjectMeta: full, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(4)), Selector: selector, Template: template}, Status: appsv1.StatefulSetStatus{Replicas: 3}},
			&appsv1.StatefulSet{ObjectMeta: kept, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(4))}},
		},
		"a ReplicaSet": {
			&appsv1.ReplicaSet{ObjectMeta: full, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Selector: selector, Template: template}, Status: appsv1.ReplicaSetStatus{Replicas: 3}},
			&appsv1.ReplicaSet{ObjectMeta: kept, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0))}},
		},
		"a Deployment": {
			&appsv1.Deployment{ObjectMeta: full, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector, Template: template}, Status: appsv1.DeploymentStatus{Replicas: 3}},
			&appsv1.Deployment{ObjectMeta: kept, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}},
		},
		"a ReplicationController": {
			&corev1.ReplicationController{ObjectMeta: full, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(1)), Template: &template}},
			&corev1.ReplicationController{ObjectMeta: kept, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(1))}},
		},
		"a budget, but for its managed fields": {
			&v1alpha1.EvictionBudget{ObjectMeta: full, Spec: v1alpha1.EvictionBudgetSpec{Selector: selector}},
			func() client.Object {
				b := &v1alpha1.EvictionBudget{ObjectMeta: full, Spec: v1alpha1.EvictionBudgetSpec{Selector: selector}}
				b.ManagedFields = nil
				return b
			}(),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := transformOf(t, tc.full)(tc.full.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(tc.want), got); diff != "" {
				t.Errorf("what is kept (-want +got):\n%s", diff)
			}
			again, err := transformOf(t, tc.full)(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(tc.want), again); diff != "" {
				t.Errorf("what is kept of it (-want +got):\n%s", diff)
			}
		})
	}
}

// A deletion that was missed is told with a wrapper.
func TestWhatIsNoOwnerIsLeftAsItIs(t *testing.T) {
	missed := toolscache.DeletedFinalStateUnknown{Key: "shop/db", Obj: &appsv1.StatefulSet{}}
	for _, kind := range []client.Object{&appsv1.StatefulSet{}, &appsv1.Deployment{}} {
		got, err := transformOf(t, kind)(missed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(any(missed), got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", kind, diff)
		}
	}
}

// Every kind that is kept in part is watched, and the other way round.
func TestEveryKindHasItsOptions(t *testing.T) {
	var watched, kept []string
	for _, kind := range Kinds() {
		watched = append(watched, fmt.Sprintf("%T", kind))
	}
	for kind := range CacheOptions() {
		kept = append(kept, fmt.Sprintf("%T", kind))
	}
	slices.Sort(watched)
	slices.Sort(kept)
	if diff := cmp.Diff(watched, kept); diff != "" {
		t.Errorf("kinds with options (-watched +options):\n%s", diff)
	}
}
