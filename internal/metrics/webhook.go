package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawbridge-dev/drawbridge/translate"
)

var (
	webhookVerdicts = Metric{
		Name: "drawbridge_eviction_verdicts_total", Type: Counter, EveryReplica: true,
		Help: "Answers to calls of the eviction subresource, by verdict, reason and class of the caller.",
		Labels: []Label{
			{Name: "verdict", Values: valuesOf(translate.Outcomes())},
			{Name: "reason", Values: valuesOf(translate.Reasons())},
			{Name: "caller_class", Values: valuesOf(translate.CallerClasses())},
		},
	}
	webhookDuration = Metric{
		Name: "drawbridge_eviction_handler_duration_seconds", Type: Histogram, EveryReplica: true,
		Help: "Time that the eviction webhook took to answer, in seconds.",
		// Most answers come from memory; the slowest end at the webhook's timeout.
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}
	webhookRenewals = Metric{
		Name: "drawbridge_lease_renewals_total", Type: Counter, EveryReplica: true,
		Help:   "Renewals of requester leases off the request path, by result.",
		Labels: []Label{{Name: "result", Values: []string{"success", "gone", "error"}}},
	}
)

var webhookBypassed = Metric{
	Name: "drawbridge_evictions_past_interceptors_total", Type: Counter, EveryReplica: true,
	Help:   "Intercepted pods that were evicted without their interceptors, by a call that passed for an earlier pod of the same name (successor) or while the pod was Pending (started).",
	Labels: []Label{{Name: "hit", Values: []string{"successor", "started"}}},
}

var webhookMetrics = []Metric{webhookVerdicts, webhookDuration, webhookRenewals, webhookBypassed}

// Webhook counts what the admission webhooks answer.
type Webhook struct {
	verdicts *prometheus.CounterVec
	duration prometheus.Observer
	renewals *prometheus.CounterVec
	bypassed *prometheus.CounterVec
}

// NewWebhook registers the metrics of the webhooks. It panics if they are
// registered already, like every MustRegister.
func NewWebhook(registerer prometheus.Registerer) *Webhook {
	return &Webhook{
		verdicts: webhookVerdicts.counter(registerer),
		duration: webhookDuration.histogram(registerer).WithLabelValues(),
		renewals: webhookRenewals.counter(registerer),
		bypassed: webhookBypassed.counter(registerer),
	}
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

// Bypassed counts one pod that was evicted without its interceptors.
func (m *Webhook) Bypassed(hit string) {
	m.bypassed.WithLabelValues(hit).Inc()
}
