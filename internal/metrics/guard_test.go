package metrics

import (
	"testing"

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
	checkSeries(t, registry, map[string]float64{
		"drawbridge_guard_pods state=closed": 1, "drawbridge_guard_pods state=held": 0, "drawbridge_guard_pods state=unguarded": 0, "drawbridge_guard_pods state=other_budget": 1,
		"drawbridge_guard_pods state=label_left":  0,
		"drawbridge_guard_budgets state=in_force": 1, "drawbridge_guard_budgets state=changed": 0, "drawbridge_guard_budgets state=not_in_force": 0, "drawbridge_guard_budgets state=refused": 0, "drawbridge_guard_budgets state=name_taken": 0,
		"drawbridge_guard_label_writes_total change=close": 1, "drawbridge_guard_label_writes_total change=open": 2,
	})
}
