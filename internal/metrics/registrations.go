package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	registrationsInForce = Metric{
		Name: "drawbridge_interceptor_registrations", Type: Gauge, EveryReplica: true,
		Help:   "Number of EvictionInterceptors, by whether they are in force.",
		Labels: []Label{{Name: "accepted", Values: []string{"true", "false"}}},
	}
	registrationFailures = Metric{
		Name: "drawbridge_interceptor_evaluation_errors_total", Type: Counter, EveryReplica: true,
		Help:   "How often an expression of an EvictionInterceptor failed for a pod, which then counts as not selected.",
		Labels: []Label{{Name: "interceptor", Bound: "the existing EvictionInterceptors; administrators create them"}},
	}
)

var registrationMetrics = []Metric{registrationsInForce, registrationFailures}

// Registrations follow the EvictionInterceptors.
type Registrations struct {
	registrations *prometheus.GaugeVec
	failures      *prometheus.CounterVec
}

// NewRegistrations registers the metrics of the registry. It panics if they are
// registered already.
func NewRegistrations(registerer prometheus.Registerer) *Registrations {
	return &Registrations{
		registrations: registrationsInForce.gauge(registerer),
		failures:      registrationFailures.counter(registerer),
	}
}

// Registrations sets how many are in force and how many are refused.
func (m *Registrations) Registrations(accepted, refused int) {
	m.registrations.WithLabelValues("true").Set(float64(accepted))
	m.registrations.WithLabelValues("false").Set(float64(refused))
}

// EvaluationFailed counts an expression that failed.
func (m *Registrations) EvaluationFailed(interceptor string) {
	m.failures.WithLabelValues(interceptor).Inc()
}

// Forget removes the series of a registration that is gone.
func (m *Registrations) Forget(interceptor string) {
	m.failures.DeleteLabelValues(interceptor)
}
