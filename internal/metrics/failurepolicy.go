package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Results of a proof: the values of the label result.
const (
	ProofReached   = "reached"
	ProofUnreached = "unreached"
)

// FailurePolicy follows the failure policy of the eviction webhook, on the leader.
type FailurePolicy struct {
	present *prometheus.GaugeVec
	changes *prometheus.CounterVec
	proofs  *prometheus.CounterVec
}

// NewFailurePolicy registers the metrics of the failure policy. It panics if they
// are registered already.
//
//   - drawbridge_webhook_failure_policy{policy} is 1 for the policy in the
//     configuration, Fail or Ignore, and 0 for the other.
//   - drawbridge_webhook_failure_policy_changes_total{policy} counts how often we set
//     it, to which.
//   - drawbridge_webhook_proofs_total{result} counts the calls by which the leader
//     tries whether the API server reaches the webhook.
func NewFailurePolicy(registerer prometheus.Registerer) *FailurePolicy {
	factory := promauto.With(registerer)
	m := &FailurePolicy{
		present: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "drawbridge_webhook_failure_policy",
			Help: "1 for the failure policy that the eviction webhook has in its configuration.",
		}, []string{"policy"}),
		changes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_webhook_failure_policy_changes_total",
			Help: "How often the manager set the failure policy of the eviction webhook.",
		}, []string{"policy"}),
		proofs: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_webhook_proofs_total",
			Help: "Dry-run evictions by which the leader tries whether the API server reaches the webhook.",
		}, []string{"result"}),
	}
	for _, result := range []string{ProofReached, ProofUnreached} {
		m.proofs.WithLabelValues(result)
	}
	return m
}

// Present sets what the configuration says; empty for no configuration.
func (m *FailurePolicy) Present(policy string) {
	for _, p := range []string{"Fail", "Ignore"} {
		value := 0.0
		if p == policy {
			value = 1
		}
		m.present.WithLabelValues(p).Set(value)
	}
}

// Changed counts a write.
func (m *FailurePolicy) Changed(policy string) { m.changes.WithLabelValues(policy).Inc() }

// Proved counts a try.
func (m *FailurePolicy) Proved(ok bool) {
	result := ProofUnreached
	if ok {
		result = ProofReached
	}
	m.proofs.WithLabelValues(result).Inc()
}
