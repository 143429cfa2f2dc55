package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRegistrationsAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewRegistrations(registry)
	m.Registrations(3, 2)
	m.Registrations(2, 1)
	m.EvaluationFailed("a.example.com")
	m.EvaluationFailed("a.example.com")
	m.EvaluationFailed("gone.example.com")
	m.Forget("gone.example.com")
	m.Forget("unknown.example.com")
	checkSeries(t, registry, map[string]float64{
		"drawbridge_interceptor_registrations accepted=true":                       2,
		"drawbridge_interceptor_registrations accepted=false":                      1,
		"drawbridge_interceptor_evaluation_errors_total interceptor=a.example.com": 2,
	})
}
