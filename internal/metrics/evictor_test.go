package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestEvictorCountsAttempts(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewEvictor(registry)
	m.Attempt("budget", "first")
	m.Attempt("budget", "backoff")
	m.Attempt("budget", "backoff")
	m.Attempt("evicted", "budget")

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
			got[series] = metric.GetCounter().GetValue()
		}
	}
	const name = "drawbridge_imperative_eviction_attempts_total"
	want := map[string]float64{
		name + " result=budget trigger=first":   1,
		name + " result=budget trigger=backoff": 2,
		name + " result=evicted trigger=budget": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}
