package metrics

import "github.com/prometheus/client_golang/prometheus"

// Evictor counts what imperative-eviction.k8s.io does.
type Evictor struct {
	attempts *prometheus.CounterVec
}

// NewEvictor registers the metrics of the imperative evictor. It panics if they
// are registered already, like every MustRegister.
//
//   - drawbridge_imperative_eviction_attempts_total{result, trigger} counts all
//     calls of pods/eviction by their result (ruling R12), both labels from
//     closed sets. trigger is first, backoff or budget.
func NewEvictor(registerer prometheus.Registerer) *Evictor {
	m := &Evictor{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_imperative_eviction_attempts_total",
			Help: "Calls of the eviction subresource by imperative-eviction.k8s.io, by their result and by what triggered them.",
		}, []string{"result", "trigger"}),
	}
	registerer.MustRegister(m.attempts)
	return m
}

// Attempt counts one call.
func (m *Evictor) Attempt(result, trigger string) {
	m.attempts.WithLabelValues(result, trigger).Inc()
}
