//go:build unix

package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/disruption"
)

// zoneLabel and groupLabel are those of the pods of a ring.
const (
	zoneLabel  = "zone"
	groupLabel = "rollout-group"
)

// ring is a database in three zones: a StatefulSet of four pods each, on three nodes to be
// drained, with room on three others.
type ring struct {
	namespace string
	// nodes are to be drained, and room are the others.
	nodes, room []string
	pods        []corev1.Pod
	budget      *v1alpha1.EvictionBudget
	watcher     *disruption.Watcher
}

var zones = []string{"a", "b", "c"}

// newRing creates a ring with the budget, which is made for its pods, and watches it.
func newRing(t *testing.T, change func(*builder.EvictionBudgetWrapper)) *ring {
	t.Helper()
	r := &ring{namespace: kube.Namespace(t)}
	r.nodes = addNodes(t, r.namespace, 3)
	for _, zone := range zones {
		set := builder.StatefulSet(r.namespace, "ingester-"+zone).Replicas(4).Pods(onNodesOf(r.namespace, func(w *builder.PodWrapper) {
			w.Label(zoneLabel, zone).Label(groupLabel, "ingester")
		})).Obj()
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		create(t, set)
	}
	r.pods = readyPods(t, r.namespace, 12, r.nodes...)
	r.room = addNodes(t, r.namespace, 3)
	b := builder.EvictionBudget(r.namespace, "ingester", groupLabel, "ingester").ByPodLabel(zoneLabel, 1).MaxUnavailable("100%")
	if change != nil {
		change(b)
	}
	r.budget = createEvictionBudget(t, b, 12)
	groups := disruption.Groups{Namespace: r.namespace, Label: zoneLabel, Expected: map[string]int{"a": 4, "b": 4, "c": 4}}
	r.watcher = must(disruption.Start(t.Context(), kube.Client(), groups))(t)
	return r
}

// createEvictionBudget creates a budget and waits until it covers so many pods.
func createEvictionBudget(t *testing.T, w *builder.EvictionBudgetWrapper, pods int32) *v1alpha1.EvictionBudget {
	t.Helper()
	b := w.Clone().Obj()
	create(t, b)
	return waitBudget(t, b, fmt.Sprintf("cover %d pods", pods), func(s *v1alpha1.EvictionBudgetStatus) bool {
		return s.MatchingPods != nil && *s.MatchingPods == pods
	})
}

// waitBudget waits for the status of a budget.
func waitBudget(t *testing.T, b *v1alpha1.EvictionBudget, what string, wanted func(*v1alpha1.EvictionBudgetStatus) bool) *v1alpha1.EvictionBudget {
	t.Helper()
	now := &v1alpha1.EvictionBudget{}
	eventually(t, "budget "+b.Name+" to "+what, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(b), now); err != nil {
			return err
		}
		if now.Status.ObservedGeneration != now.Generation || !wanted(&now.Status) {
			return fmt.Errorf("its status is %+v", now.Status)
		}
		return nil
	})
	return now
}

// lets is the condition Granting of a budget: its reason.
func lets(reason string) func(*v1alpha1.EvictionBudgetStatus) bool {
	return func(s *v1alpha1.EvictionBudgetStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionGranting)
		return c != nil && c.Reason == reason
	}
}

// keptZones fails the test unless all pods have moved, and never two zones were disrupted.
func (r *ring) keptZones(t *testing.T) {
	t.Helper()
	for i := range r.pods {
		gone(t, &r.pods[i])
	}
	eventually(t, "all pods to be ready again", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(r.namespace)); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) {
				ready++
			}
		}
		if ready != len(r.pods) {
			return fmt.Errorf("%d are", ready)
		}
		return nil
	})
	seen, err := r.watcher.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if seen.Most > 1 {
		t.Errorf("%d zones were disrupted at the same time: %s", seen.Most, seen.Worst)
	}
	if seen.Times < len(zones) {
		t.Errorf("the zones were disrupted %d times, want all of them: the watch has seen nothing", seen.Times)
	}
}
