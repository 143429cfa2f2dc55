package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label policy.
var failurePolicies = []string{"Ignore", "Fail"}

var (
	servingPolicy = Metric{
		Name: "drawbridge_webhook_failure_policy", Type: Gauge, EveryReplica: true,
		Help:   "1 for the failure policy that the eviction webhook has in the cluster now, 0 for the other one.",
		Labels: []Label{{Name: "policy", Values: failurePolicies}},
	}
	servingExpiry = Metric{
		Name: "drawbridge_webhook_certificate_expiry_timestamp_seconds", Type: Gauge, EveryReplica: true,
		Help: "When the certificate that this replica serves expires, in seconds since 1970.",
	}
)

var servingMetrics = []Metric{servingPolicy, servingExpiry}

// Serving says how the webhook is served. Both functions are asked at each scrape, so
// they must answer from memory, and they may be called from several goroutines.
type Serving struct {
	// FailurePolicy is the eviction webhook's; empty when it is not known.
	FailurePolicy func() string
	// Expiry is that of the certificate in use; zero while there is none.
	Expiry func() time.Time

	policy, expiry *prometheus.Desc
}

// Register registers the metrics. It panics if they are registered already.
func (s *Serving) Register(registerer prometheus.Registerer) {
	s.policy, s.expiry = servingPolicy.desc(), servingExpiry.desc()
	registerer.MustRegister(s)
}

// Describe implements prometheus.Collector.
func (s *Serving) Describe(descs chan<- *prometheus.Desc) {
	descs <- s.policy
	descs <- s.expiry
}

// Collect implements prometheus.Collector.
func (s *Serving) Collect(metrics chan<- prometheus.Metric) {
	if present := s.FailurePolicy(); present != "" {
		for _, policy := range failurePolicies {
			value := 0.0
			if policy == present {
				value = 1
			}
			metrics <- prometheus.MustNewConstMetric(s.policy, prometheus.GaugeValue, value, policy)
		}
	}
	if expiry := s.Expiry(); !expiry.IsZero() {
		metrics <- prometheus.MustNewConstMetric(s.expiry, prometheus.GaugeValue, float64(expiry.Unix()))
	}
}
