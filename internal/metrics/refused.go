package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

var writesRefused = Metric{
	Name: "drawbridge_writes_refused_total", Type: Counter, EveryReplica: true,
	Help: "Writes of the manager that the API server refused for good, by what was written and by what refuses it.",
	Labels: []Label{
		{Name: "what", Values: valuesOf(append(refused.Writes(), refused.Unnamed))},
		{Name: "cause", Values: valuesOf(refused.Causes())},
	},
}

var refusedMetrics = []Metric{writesRefused}

// Refused counts the writes that are refused, on every replica.
type Refused struct{ total *prometheus.CounterVec }

var _ refused.Metrics = &Refused{}

// NewRefused registers the metric. It panics if it is registered already. There is no
// series before there is a refusal.
func NewRefused(registerer prometheus.Registerer) *Refused {
	return &Refused{total: writesRefused.counter(registerer)}
}

// Refused counts one.
func (m *Refused) Refused(what, cause string) { m.total.WithLabelValues(what, cause).Inc() }
