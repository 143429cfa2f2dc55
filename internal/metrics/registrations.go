package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Registrations follow the EvictionInterceptors.
type Registrations struct {
	registrations *prometheus.GaugeVec
	failures      *prometheus.CounterVec
}

// NewRegistrations registers the metrics of the registry. It panics if they are
// registered already.
//
//   - drawbridge_interceptor_registrations{accepted} is the number of
//     EvictionInterceptors, by whether they are in force.
//   - drawbridge_interceptor_evaluation_errors_total{interceptor} counts the times
//     that an expression of a registration failed for a pod. There is a series only
//     for registrations that exist.
func NewRegistrations(registerer prometheus.Registerer) *Registrations {
	factory := promauto.With(registerer)
	return &Registrations{
		registrations: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "drawbridge_interceptor_registrations",
			Help: "Number of EvictionInterceptors, by whether they are in force.",
		}, []string{"accepted"}),
		failures: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_interceptor_evaluation_errors_total",
			Help: "How often an expression of an EvictionInterceptor failed for a pod, which then counts as not selected.",
		}, []string{"interceptor"}),
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
