//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Three nodes are drained at the same time by three real kubectl drains: at no moment are
// pods of two zones missing, and all drains end.
func TestZonesAreDrainedOneAfterTheOther(t *testing.T) {
	shareManager(t)
	r := newRing(t, nil)
	for _, node := range r.room { // The first zone comes back when the test has seen that the others wait.
		unschedulable(t, node, true)
	}
	drains := make([]*cluster.Program, len(r.nodes))
	for i, node := range r.nodes {
		drains[i] = startDrain(t, "alice", node)
	}
	waitBudget(t, r.budget, "let zones wait", lets(v1alpha1.ReasonGroupsDisrupted))
	for _, node := range r.room {
		unschedulable(t, node, false)
	}
	for _, drain := range drains {
		finishWell(t, drain)
	}
	r.keptZones(t)
	waitBudget(t, r.budget, "have room again", func(s *v1alpha1.EvictionBudgetStatus) bool {
		return *s.Waiting == 0 && len(s.Grants) == 0 && *s.DisruptionsAllowed == 4
	})
}

// The same by a NodeMaintenance of three nodes at a time.
func TestAMaintenanceKeepsZones(t *testing.T) {
	shareManager(t)
	r := newRing(t, nil)
	for _, node := range r.nodes {
		label(t, node, "maintain", r.namespace)
	}
	w := builder.NodeMaintenance(r.namespace+"-zones").Term("maintain", "In", r.namespace).Parallel(3)
	m := maintain(t, w.Drain())
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
	r.keptZones(t)
}

// The same by callers who do nothing else than to call the eviction API again and again.
func TestZonesAreKeptInAHotLoop(t *testing.T) {
	shareManager(t)
	r := newRing(t, nil)
	for _, node := range r.nodes {
		unschedulable(t, node, true)
	}
	var callers sync.WaitGroup
	for i := range r.pods {
		callers.Go(func() {
			pod := &r.pods[i]
			eventually(t, "the eviction of "+pod.Name+" to be granted", func(context.Context) error {
				got := evict(t, "alice", pod, eviction(pod))
				if got.code == http.StatusTooManyRequests {
					return fmt.Errorf("%s", got.body)
				}
				return nil
			})
		})
	}
	callers.Wait()
	r.keptZones(t)
}

// The same by EvictionRequests: nobody calls the eviction API but Drawbridge itself.
func TestZonesAreKeptByTheEvictorAlone(t *testing.T) {
	shareManager(t)
	r := newRing(t, nil)
	for _, node := range r.nodes {
		unschedulable(t, node, true)
	}
	for i := range r.pods {
		pod := &r.pods[i]
		create(t, builder.EvictionRequest(r.namespace, pod.Name, pod.UID).Requesters("rebalancer.example.com").Obj())
	}
	r.keptZones(t)
}
