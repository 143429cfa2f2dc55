//go:build unix

package karpenter

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// What Karpenter says of a node that it does not disrupt.
const (
	budgetBlocks = "Pdb prevents pod evictions"
	annotated    = `has "karpenter.sh/do-not-disrupt" annotation`
)

// disruption is a node that Karpenter has its own reasons to disrupt.
type disruption struct {
	terminationGracePeriod string
	create                 func(*testing.T, *pool) *corev1.Pod
	// alone is what happens without Drawbridge, together with it. blocked is what Karpenter
	// says of a node that stays.
	alone, together outcome
	blocked         string
}

// guardedPod is one whose guard is closed from the start, if there is Drawbridge.
func guardedPod(t *testing.T, p *pool) *corev1.Pod {
	t.Helper()
	pod := p.pod(t, "guarded", func(w *builder.PodWrapper) { w.Label(guardLabel, "always") })
	if inst == nil {
		return pod
	}
	eventually(t, "the guard to be closed", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, keyOf(pod), now); err != nil {
			return err
		}
		if now.Labels[v1alpha1.GuardLabel] != v1alpha1.GuardClosed {
			return fmt.Errorf("labels %v", now.Labels)
		}
		return nil
	})
	return pod
}

var drifts = map[string]disruption{
	"a plain pod is evicted":                           {"", plainPod, atOnce, atOnce, ""},
	"an intercepted pod is prepared":                   {"", interceptedPod, atOnce, prepared, ""},
	"a pod of a StatefulSet is prepared":               {"", setPod, atOnce, prepared, ""},
	"a pod with a closed guard stays":                  {"", guardedPod, atOnce, untouched, budgetBlocks},
	"a pod with a closed guard is prepared in an hour": {"1h", guardedPod, atOnce, prepared, ""},
	"a single replica stays":                           {"", single, untouched, untouched, budgetBlocks},
	"a single replica is moved within an hour":         {"1h", single, blocks, moved, ""},
	"a pod that is not to be disrupted stays":          {"", undisruptable, untouched, untouched, annotated},
}

var consolidations = map[string]disruption{
	"a plain pod is evicted":                  {"", plainPod, atOnce, atOnce, ""},
	"an intercepted pod is prepared":          {"", interceptedPod, atOnce, prepared, ""},
	"a pod with a closed guard stays":         {"", guardedPod, atOnce, untouched, budgetBlocks},
	"a single replica stays":                  {"", single, untouched, untouched, budgetBlocks},
	"a pod that is not to be disrupted stays": {"", undisruptable, untouched, untouched, annotated},
}

// drift lets the node be of a template that the pool has no longer.
func (d disruption) drift(t *testing.T, want outcome, w *peer.Worker) {
	t.Helper()
	p := newPool(t, d.terminationGracePeriod)
	v := onItsNode(t, d.create(t, p))
	p.change(t, func(spec map[string]any) {
		spec["template"].(map[string]any)["metadata"] = map[string]any{"labels": map[string]any{"test.example.com/changed": "true"}}
	})
	v.judge(t, want, w, "DisruptionBlocked", d.blocked)
}

// consolidate leaves the pod alone on a node that is too large for it.
func (d disruption) consolidate(t *testing.T, want outcome, w *peer.Worker) {
	t.Helper()
	p := newPool(t, d.terminationGracePeriod)
	// Karpenter makes one node for pods that come together.
	large := builder.Pod(p.name, "large")
	p.here(func(w *builder.PodWrapper) { w.CPU("6") })(large)
	cluster.Create(t, admin, large.Obj())
	v := onItsNode(t, d.create(t, p))
	neighbour := cluster.ReadyPod(t, admin, p.name, "large")
	if diff := cmp.Diff(neighbour.Spec.NodeName, v.pod.Spec.NodeName); diff != "" {
		t.Fatalf("the pods are not on the same node:\n%s", diff)
	}
	if err := admin.Delete(t.Context(), neighbour); err != nil {
		t.Fatal(err)
	}
	cluster.Gone(t, admin, neighbour)
	p.change(t, func(spec map[string]any) { spec["disruption"].(map[string]any)["consolidateAfter"] = "0s" })
	v.judge(t, want, w, "DisruptionBlocked", d.blocked)
}

// Karpenter replaces a node that has drifted as it does without Drawbridge, and waits for
// its pods.
func TestADriftedNode(t *testing.T) {
	together(t)
	for name, d := range drifts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.drift(t, d.together, preparing)
		})
	}
}

// A guard that is closed from the start keeps Karpenter from choosing the node; one that
// closes while the pod is evacuated does not.
func TestAConsolidatedNode(t *testing.T) {
	together(t)
	for name, d := range consolidations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.consolidate(t, d.together, preparing)
		})
	}
}
