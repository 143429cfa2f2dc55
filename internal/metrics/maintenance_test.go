package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestMaintenancesAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMaintenance(registry)
	m.Observe("a", v1alpha1.NodeMaintenanceStatus{Stage: v1alpha1.StageCordon})
	m.Observe("a", v1alpha1.NodeMaintenanceStatus{
		Stage: v1alpha1.StageDrain, Progress: v1alpha1.MaintenanceProgress{PodsPendingEvacuation: 5, PodsEvacuating: 2, PodsBlocking: 1},
	})
	m.Observe("b", v1alpha1.NodeMaintenanceStatus{Stage: v1alpha1.StageDrain, Progress: v1alpha1.MaintenanceProgress{PodsPendingEvacuation: 4}})
	m.Observe("c", v1alpha1.NodeMaintenanceStatus{Stage: v1alpha1.StagePlanning})
	m.Forget("c")
	m.Forget("c")
	m.Wrote(MaintenanceWriteJoin)
	checkSeries(t, registry, map[string]float64{
		"drawbridge_maintenances stage=Drain": 2, "drawbridge_maintenances stage=Cordon": 0, "drawbridge_maintenances stage=Planning": 0, "drawbridge_maintenances stage=DrainComplete": 0, "drawbridge_maintenances stage=MaintenanceComplete": 0,
		"drawbridge_maintenance_pods state=pending":       9,
		"drawbridge_maintenance_pods state=evacuating":    2,
		"drawbridge_maintenance_pods state=blocking":      1,
		"drawbridge_maintenance_writes_total object=join": 1,
	})
}
