package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestBudgetsAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewBudgets(registry)
	since := time.Unix(1_700_000_000, 0)
	m.Granted(2)
	m.Granted(1)
	m.Waiting("shop", "ingester", 3, since)
	m.Waiting("shop", "ingester", 2, since.Add(time.Minute))
	m.Waiting("shop", "night", 1, since)
	m.Waiting("shop", "night", 0, time.Time{})
	m.Waiting("depot", "night", 4, since)
	m.Waiting("depot", "closed", 5, since)
	m.Waiting("depot", "closed", 5, time.Time{})
	checkSeries(t, registry, map[string]float64{
		"drawbridge_budget_grants_total":                                                   3,
		"drawbridge_budget_waiting budget=ingester namespace=shop":                         2,
		"drawbridge_budget_waiting budget=night namespace=depot":                           4,
		"drawbridge_budget_waiting budget=closed namespace=depot":                          5,
		"drawbridge_budget_waiting_since_timestamp_seconds budget=ingester namespace=shop": 1_700_000_060,
		"drawbridge_budget_waiting_since_timestamp_seconds budget=night namespace=depot":   1_700_000_000,
	})
}
