package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// How questions of the scheduler end: the values of the label result.
const (
	// PreemptionUnchanged: all nodes may be used.
	PreemptionUnchanged = "unchanged"
	// PreemptionRestricted: some may not.
	PreemptionRestricted = "restricted"
	// PreemptionSubstituted: some may, with other victims than the scheduler's.
	PreemptionSubstituted = "substituted"
	// PreemptionRefused: none may.
	PreemptionRefused = "refused"
	// PreemptionUnauthorized: the caller is not the scheduler.
	PreemptionUnauthorized = "unauthorized"
	// PreemptionError: there is no answer. The scheduler goes on as without us.
	PreemptionError = "error"
)

var (
	preemptionDecisions = Metric{
		Name: "drawbridge_preemption_decisions_total", Type: Counter, EveryReplica: true,
		Help: "Calls of the scheduler that ask which nodes it may use for a preemption, by result.",
		Labels: []Label{{Name: "result", Values: []string{
			PreemptionUnchanged, PreemptionRestricted, PreemptionSubstituted, PreemptionRefused, PreemptionUnauthorized, PreemptionError,
		}}},
	}
	preemptionDropped = Metric{
		Name: "drawbridge_preemption_dropped_nodes_total", Type: Counter, EveryReplica: true,
		Help:   "Candidate nodes that the scheduler may not use, by reason.",
		Labels: []Label{{Name: "reason", Values: []string{"budget", "unknown_victim", "spans_nodes"}}},
	}
	preemptionDeletions = Metric{
		Name: "drawbridge_preemption_deletions_total", Type: Counter, EveryReplica: true,
		Help:   "Deletions of pods by the scheduler that the webhook reviewed, by verdict.",
		Labels: []Label{{Name: "verdict", Values: []string{"not_covered", "allowed", "unsure", "refused"}}},
	}
	preemptionDuration = Metric{
		Name: "drawbridge_preemption_duration_seconds", Type: Histogram, EveryReplica: true,
		Help:    "Time to answer the scheduler, in seconds.",
		Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
	}
)

var preemptionMetrics = []Metric{preemptionDecisions, preemptionDropped, preemptionDeletions, preemptionDuration}

// Preemption counts what becomes of the scheduler's preemptions. Safe for concurrent
// use.
type Preemption struct {
	decisions *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	deletes   *prometheus.CounterVec
	duration  prometheus.Observer
}

// NewPreemption registers the metrics of budgets that the scheduler may not break. It
// panics if they are registered already, like every MustRegister.
func NewPreemption(registerer prometheus.Registerer) *Preemption {
	m := &Preemption{
		decisions: preemptionDecisions.counter(registerer),
		dropped:   preemptionDropped.counter(registerer),
		deletes:   preemptionDeletions.counter(registerer),
		duration:  preemptionDuration.histogram(registerer).WithLabelValues(),
	}
	for _, result := range preemptionDecisions.Labels[0].Values {
		m.decisions.WithLabelValues(result).Add(0)
	}
	return m
}

// Answered counts one question and how long it took.
func (m *Preemption) Answered(result string, took time.Duration) {
	m.decisions.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}

// Dropped counts one node that may not be used.
func (m *Preemption) Dropped(reason string) { m.dropped.WithLabelValues(reason).Inc() }

// Deletion counts one deletion by the scheduler.
func (m *Preemption) Deletion(verdict string) { m.deletes.WithLabelValues(verdict).Inc() }
