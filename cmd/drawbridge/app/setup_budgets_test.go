package app

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/budget"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
)

// withBoth are the options with the surge and budgets on or off.
func withBoth(surge, budgets bool) Options {
	o := DefaultOptions()
	o.Surge, o.Budgets.Enabled = surge, budgets
	return o
}

// A kind has one informer, whoever reads it: it keeps what the surge needs, and what budgets
// do.
func TestTheSurgeAndBudgetsShareInformers(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "db", UID: "1", ResourceVersion: "7", Generation: 3,
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Ring", Name: "ingester", UID: "ring", Controller: new(true)}},
		DeletionTimestamp: new(metav1.Now()), CreationTimestamp: metav1.Now(),
		Annotations: map[string]string{"deployment.kubernetes.io/revision": "4", "note": "long"}, Labels: map[string]string{"app": "db"},
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}}
	objects := []client.Object{
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(4)), Template: template, MinReadySeconds: 9, Paused: true}},
		&appsv1.ReplicaSet{
			ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(4)), Template: template},
			Status: appsv1.ReplicaSetStatus{Conditions: []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue}}},
		},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(4)), Template: template}},
		&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(4)), Template: &template}},
	}
	for _, tc := range []struct{ surge, budgets bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		t.Run(fmt.Sprintf("surge %t, budgets %t", tc.surge, tc.budgets), func(t *testing.T) {
			byObject := cacheOptions(withBoth(tc.surge, tc.budgets)).ByObject
			for _, full := range objects {
				// through is what informers with these options keep of it.
				through := func(options map[client.Object]cache.ByObject) []any {
					var kept []any
					for kind, of := range options {
						if fmt.Sprintf("%T", kind) != fmt.Sprintf("%T", full) {
							continue
						}
						slim, err := of.Transform(full.DeepCopyObject())
						if err != nil {
							t.Fatal(err)
						}
						kept = append(kept, slim)
					}
					return kept
				}
				var want []any
				if tc.budgets {
					want = through(budget.CacheOptions())
				}
				if more := through(surge.CacheOptions()); tc.surge && len(more) > 0 {
					want = more
				}
				got := through(byObject)
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("what is kept of a %T (-want +got):\n%s", full, diff)
				}
				if tc.budgets && len(got) == 1 {
					if diff := cmp.Diff(through(budget.CacheOptions()), slimmer(t, got[0])); diff != "" {
						t.Errorf("budgets see another %T (-want +got):\n%s", full, diff)
					}
				}
			}
		})
	}
}

// slimmer is what the options of budgets keep of an object.
func slimmer(t *testing.T, obj any) []any {
	t.Helper()
	for kind, options := range budget.CacheOptions() {
		if fmt.Sprintf("%T", kind) == fmt.Sprintf("%T", obj) {
			slim, err := options.Transform(obj)
			if err != nil {
				t.Fatal(err)
			}
			return []any{slim}
		}
	}
	return nil
}

func TestWhatIsWatchedForBudgets(t *testing.T) {
	cases := map[string]struct {
		surge, budgets bool
		want           []string
	}{
		"with both":           {true, true, []string{"Deployment", "EvictionBudget", "ReplicaSet", "ReplicationController", "StatefulSet"}},
		"without budgets":     {true, false, []string{"Deployment", "ReplicaSet"}},
		"without the surge":   {false, true, []string{"Deployment", "EvictionBudget", "ReplicaSet", "ReplicationController", "StatefulSet"}},
		"without any of both": {false, false, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			informers := &informertest.FakeInformers{Scheme: newScheme()}
			if err := watchAll(t.Context(), informers, withBoth(tc.surge, tc.budgets)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for kind := range informers.InformersByGVK {
				if kind.Group == "apps" || slices.Contains([]string{"EvictionBudget", "ReplicationController"}, kind.Kind) {
					got = append(got, kind.Kind)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
		})
	}
}
