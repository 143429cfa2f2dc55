package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue(); value != 0 {
				got[family.GetName()+" "+metric.GetLabel()[0].GetValue()] = value
			}
		}
	}
	want := map[string]float64{
		"drawbridge_maintenances Drain":            2,
		"drawbridge_maintenance_pods pending":      9,
		"drawbridge_maintenance_pods evacuating":   2,
		"drawbridge_maintenance_pods blocking":     1,
		"drawbridge_maintenance_writes_total join": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series that are not 0 (-want +got):\n%s", diff)
	}
}
