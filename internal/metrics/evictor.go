package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawbridge-dev/drawbridge/translate"
)

var evictorAttempts = Metric{
	Name: "drawbridge_imperative_eviction_attempts_total", Type: Counter,
	Help: "Calls of the eviction subresource by imperative-eviction.k8s.io, by result and trigger.",
	Labels: []Label{
		{Name: "result", Values: valuesOf(translate.Results())},
		{Name: "trigger", Values: valuesOf(translate.Triggers())},
	},
}

var evictorDeletions = Metric{
	Name: "drawbridge_exhausted_deletions_total", Type: Counter,
	Help: "Pods deleted in spite of a PodDisruptionBudget that can never allow it, as their EvictionBudgets say.",
}

var evictorMetrics = []Metric{evictorAttempts, evictorDeletions}

// Evictor counts what imperative-eviction.k8s.io does.
type Evictor struct {
	attempts  *prometheus.CounterVec
	deletions prometheus.Counter
}

// NewEvictor registers the metrics of the imperative evictor (ruling R12). It panics
// if they are registered already, like every MustRegister.
func NewEvictor(registerer prometheus.Registerer) *Evictor {
	return &Evictor{attempts: evictorAttempts.counter(registerer), deletions: evictorDeletions.counter(registerer).WithLabelValues()}
}

// Attempt counts one call.
func (m *Evictor) Attempt(result, trigger string) {
	m.attempts.WithLabelValues(result, trigger).Inc()
}

// Deleted counts a pod that was deleted in spite of its PodDisruptionBudget.
func (m *Evictor) Deleted() { m.deletions.Inc() }
