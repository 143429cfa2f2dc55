package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	budgetGrants = Metric{
		Name: "drawbridge_budget_grants_total", Type: Counter,
		Help: "Evictions that an EvictionBudget has granted.",
	}
	budgetWaiting = Metric{
		Name: "drawbridge_budget_waiting", Type: Gauge, Help: "Evictions that wait for an EvictionBudget.",
		Labels: budgetLabels,
	}
	budgetWaitingSince = Metric{
		Name: "drawbridge_budget_waiting_since_timestamp_seconds", Type: Gauge,
		Help:   "Since when evictions wait for an EvictionBudget that has granted none since, in Unix time.",
		Labels: budgetLabels,
	}
)

var budgetLabels = []Label{
	{Name: "namespace", Bound: "namespaces with an EvictionBudget for which an eviction waits"},
	{Name: "budget", Bound: "EvictionBudgets for which an eviction waits"},
}

var budgetMetrics = []Metric{budgetGrants, budgetWaiting, budgetWaitingSince}

// Budgets owns the metrics of EvictionBudgets. Safe for concurrent use.
type Budgets struct {
	grants         prometheus.Counter
	waiting, since *prometheus.GaugeVec
}

// NewBudgets registers the metrics with the registerer and returns them. A registerer
// that already has one of them panics: that is a wiring mistake.
func NewBudgets(registerer prometheus.Registerer) *Budgets {
	return &Budgets{
		grants:  budgetGrants.counter(registerer).WithLabelValues(),
		waiting: budgetWaiting.gauge(registerer),
		since:   budgetWaitingSince.gauge(registerer),
	}
}

// Granted counts grants.
func (m *Budgets) Granted(n int) { m.grants.Add(float64(n)) }

// Waiting sets how many evictions wait for a budget, and since when none was granted
// although some waited in vain: zero if nothing is expected. One for which none waits has no
// series.
func (m *Budgets) Waiting(namespace, budget string, waiting int, since time.Time) {
	if waiting == 0 {
		m.waiting.DeleteLabelValues(namespace, budget)
		m.since.DeleteLabelValues(namespace, budget)
		return
	}
	m.waiting.WithLabelValues(namespace, budget).Set(float64(waiting))
	if since.IsZero() {
		m.since.DeleteLabelValues(namespace, budget)
		return
	}
	m.since.WithLabelValues(namespace, budget).Set(float64(since.Unix()))
}
