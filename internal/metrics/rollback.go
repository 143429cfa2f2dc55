package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The resources whose resource versions are compared.
const (
	ResourcePods             = "pods"
	ResourceEvictionRequests = "evictionrequests." + v1alpha1.GroupName
)

var apiServerResourceVersion = Metric{
	Name: "drawbridge_apiserver_resource_version", Type: Gauge, EveryReplica: true,
	Help:   "Resource version of the API server's list, read every 5 seconds. It falls only if the API server's store went back in time, as when etcd was restored from a snapshot.",
	Labels: []Label{{Name: "resource", Values: []string{ResourcePods, ResourceEvictionRequests}}},
}

var rollbackMetrics = []Metric{apiServerResourceVersion}

// Rollback shows what time it is in the API server's store.
type Rollback struct{ version *prometheus.GaugeVec }

// NewRollback registers the metric. It panics if it is registered already.
func NewRollback(registerer prometheus.Registerer) *Rollback {
	return &Rollback{version: apiServerResourceVersion.gauge(registerer)}
}

// ResourceVersion sets that of a resource. What is no number is left out.
func (m *Rollback) ResourceVersion(resource, version string) {
	if n, err := strconv.ParseFloat(version, 64); err == nil {
		m.version.WithLabelValues(resource).Set(n)
	}
}
