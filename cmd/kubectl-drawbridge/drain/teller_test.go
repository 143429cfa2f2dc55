package drain

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestPlainLines(t *testing.T) {
	var teller teller
	var lines []string
	next := func(s snapshot) { lines = append(lines, teller.next(s)...) }
	node := func(stage v1alpha1.MaintenanceStage, pending int32) v1alpha1.MaintenanceNodeStatus {
		return v1alpha1.MaintenanceNodeStatus{Name: "node-1", Stage: stage, PodsPendingEvacuation: pending}
	}
	next(snapshot{})
	next(snapshot{Maintenance: maintenance(node(v1alpha1.StagePlanning, 0))})
	next(snapshot{Maintenance: maintenance(node(v1alpha1.StageCordon, 0))})
	next(snapshot{Maintenance: maintenance(node(v1alpha1.StageDrain, 2))})
	working := intercepting("shop/db-0", "node-1", "a.example.com", 0, "10 %")
	next(snapshot{Maintenance: maintenance(node(v1alpha1.StageDrain, 2)), Pods: []movingPod{working, {UID: "2", Name: "shop/web"}}})
	next(snapshot{Maintenance: maintenance(node(v1alpha1.StageDrain, 2)), Pods: []movingPod{working}})
	stuck := node(v1alpha1.StageDrain, 1)
	stuck.Wave = "storage"
	stuck.BlockingPods = []v1alpha1.BlockingPod{{Namespace: "shop", Name: "db-0", Reason: v1alpha1.BlockEvictionRefused, Message: "budget db"}}
	next(snapshot{Maintenance: maintenance(stuck), Pods: []movingPod{blocked("shop/db-0", "node-1"), evicted("shop/web", "node-1")}})
	next(snapshot{Maintenance: maintenance(stuck), Pods: []movingPod{blocked("shop/db-0", "node-1")}})
	next(snapshot{Maintenance: maintenance(node(v1alpha1.StageDrainComplete, 0)), Pods: []movingPod{evicted("shop/db-0", "node-1")}})
	next(snapshot{Maintenance: maintenance(node(v1alpha1.StageDrainComplete, 0))})
	want := []string{
		"node/node-1 cordoned",
		"node/node-1 draining, 2 pods to go",
		"pod shop/db-0 waits for a.example.com 1/2: 10 %",
		"node/node-1 wave storage",
		"pod shop/db-0 is blocked: waiting for budget queue: The disruption budget queue needs 1 healthy pods and has 1 currently.",
		"pod shop/web evicted",
		"pod shop/db-0 is blocked: EvictionRefused: budget db",
		"pod shop/db-0 evicted",
		"node/node-1 drained",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
