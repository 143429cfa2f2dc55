package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestEvictorCountsAttempts(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewEvictor(registry)
	m.Attempt("budget", "first")
	m.Attempt("budget", "backoff")
	m.Attempt("budget", "backoff")
	m.Attempt("evicted", "budget")
	want := `
# HELP drawbridge_imperative_eviction_attempts_total Calls of the eviction subresource by imperative-eviction.k8s.io, by their result and by what triggered them.
# TYPE drawbridge_imperative_eviction_attempts_total counter
drawbridge_imperative_eviction_attempts_total{result="budget",trigger="backoff"} 2
drawbridge_imperative_eviction_attempts_total{result="budget",trigger="first"} 1
drawbridge_imperative_eviction_attempts_total{result="evicted",trigger="budget"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
