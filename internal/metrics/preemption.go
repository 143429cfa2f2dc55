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
	// PreemptionRefused: none may.
	PreemptionRefused = "refused"
	// PreemptionUnauthorized: the caller is not the scheduler.
	PreemptionUnauthorized = "unauthorized"
	// PreemptionError: there is no answer. The scheduler goes on as without us.
	PreemptionError = "error"
)

// Preemption counts what becomes of the scheduler's preemptions. Safe for concurrent
// use.
type Preemption struct {
	decisions *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	deletes   *prometheus.CounterVec
	duration  prometheus.Histogram
}

// NewPreemption registers the metrics of budgets that the scheduler may not break. It
// panics if they are registered already, like every MustRegister.
//
//   - drawbridge_preemption_decisions_total{result} counts questions of the scheduler.
//   - drawbridge_preemption_dropped_nodes_total{reason} counts nodes that were not to
//     be used.
//   - drawbridge_preemption_deletions_total{verdict} counts deletions by the scheduler
//     that the webhook was asked about.
//   - drawbridge_preemption_duration_seconds is how long an answer took.
func NewPreemption(registerer prometheus.Registerer) *Preemption {
	m := &Preemption{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_preemption_decisions_total",
			Help: "Questions of the scheduler which nodes it may use for a preemption, by result.",
		}, []string{"result"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_preemption_dropped_nodes_total",
			Help: "Candidate nodes that the scheduler was not to use, by reason.",
		}, []string{"reason"}),
		deletes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_preemption_deletions_total",
			Help: "Deletions of pods by the scheduler that the webhook was asked about, by verdict.",
		}, []string{"verdict"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "drawbridge_preemption_duration_seconds",
			Help:    "Time an answer to the scheduler took, in seconds.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
		}),
	}
	for _, result := range []string{PreemptionUnchanged, PreemptionRestricted, PreemptionRefused, PreemptionUnauthorized, PreemptionError} {
		m.decisions.WithLabelValues(result).Add(0)
	}
	registerer.MustRegister(m.decisions, m.dropped, m.deletes, m.duration)
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
