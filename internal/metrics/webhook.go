package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Webhook counts what the admission webhooks answer.
type Webhook struct {
	verdicts *prometheus.CounterVec
	duration prometheus.Histogram
	renewals *prometheus.CounterVec
}

// NewWebhook registers the metrics of the webhooks. It panics if they are
// registered already, like every MustRegister.
//
//   - drawbridge_eviction_verdicts_total{verdict, reason, caller_class} counts
//     the answers to calls of pods/eviction. verdict is allowed, denied or
//     not_found; all labels are from closed sets.
//   - drawbridge_eviction_handler_duration_seconds is how long an answer took.
//   - drawbridge_lease_renewals_total{result} counts writes of requester leases
//     off the request path: success, gone or error.
func NewWebhook(registerer prometheus.Registerer) *Webhook {
	m := &Webhook{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_eviction_verdicts_total",
			Help: "Answers to calls of the eviction subresource, by verdict, reason and class of the caller.",
		}, []string{"verdict", "reason", "caller_class"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "drawbridge_eviction_handler_duration_seconds",
			Help: "Time the eviction webhook took to answer, in seconds.",
			// Most answers come from memory; the slowest end at the webhook's timeout.
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_lease_renewals_total",
			Help: "Renewals of requester leases, by result.",
		}, []string{"result"}),
	}
	registerer.MustRegister(m.verdicts, m.duration, m.renewals)
	return m
}

// Verdict counts one answer and the time it took.
func (m *Webhook) Verdict(verdict, reason, callerClass string, took time.Duration) {
	m.verdicts.WithLabelValues(verdict, reason, callerClass).Inc()
	m.duration.Observe(took.Seconds())
}

// Renewal counts one renewal by its result.
func (m *Webhook) Renewal(result string) {
	m.renewals.WithLabelValues(result).Inc()
}
