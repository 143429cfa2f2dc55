package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

func TestGuardCountsPodsByState(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewGuard(registry)
	a, b, c := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}, types.NamespacedName{Name: "c"}
	m.Observe(a, GuardUnguarded)
	m.Observe(a, GuardClosed)
	m.Observe(a, GuardClosed)
	m.Observe(b, GuardOtherBudget)
	m.Observe(c, GuardHeld)
	m.Forget(c)
	m.Forget(c)
	m.ObserveBudget("shop", GuardBudgetNotInForce)
	m.ObserveBudget("shop", GuardBudgetInForce)
	m.ObserveBudget("db", GuardBudgetChanged)
	m.ObserveBudget("db", "")
	m.Labeled(true)
	m.Labeled(false)
	m.Labeled(false)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				got[family.GetName()+" "+label.GetValue()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{
		"drawbridge_guard_pods closed": 1, "drawbridge_guard_pods held": 0, "drawbridge_guard_pods unguarded": 0, "drawbridge_guard_pods other_budget": 1,
		"drawbridge_guard_pods label_left":  0,
		"drawbridge_guard_budgets in_force": 1, "drawbridge_guard_budgets changed": 0, "drawbridge_guard_budgets not_in_force": 0, "drawbridge_guard_budgets refused": 0, "drawbridge_guard_budgets name_taken": 0,
		"drawbridge_guard_label_writes_total close": 1, "drawbridge_guard_label_writes_total open": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}
