package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestEvictorCountsAttempts(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewEvictor(registry)
	m.Attempt("budget", "first")
	m.Attempt("budget", "backoff")
	m.Attempt("budget", "backoff")
	m.Attempt("evicted", "budget")
	m.Deleted()
	const name = "drawbridge_imperative_eviction_attempts_total"
	checkSeries(t, registry, map[string]float64{
		name + " result=budget trigger=first":   1,
		name + " result=budget trigger=backoff": 2,
		name + " result=evicted trigger=budget": 1,
		"drawbridge_exhausted_deletions_total":  1,
	})
}
