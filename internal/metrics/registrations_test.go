package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			series := family.GetName()
			for _, label := range metric.GetLabel() {
				series += " " + label.GetName() + "=" + label.GetValue()
			}
			got[series] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"drawbridge_interceptor_registrations accepted=true":                       2,
		"drawbridge_interceptor_registrations accepted=false":                      1,
		"drawbridge_interceptor_evaluation_errors_total interceptor=a.example.com": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}
