package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Results of a proof: the values of the label result.
const (
	ProofReached   = "reached"
	ProofUnreached = "unreached"
)

var failurePolicies = []string{"Fail", "Ignore"}

var (
	failurePolicyPresent = Metric{
		Name: "drawbridge_webhook_failure_policy", Type: Gauge,
		Help:   "1 for the failure policy that the eviction webhook has in its configuration, 0 for the other one.",
		Labels: []Label{{Name: "policy", Values: failurePolicies}},
	}
	failurePolicyChanges = Metric{
		Name: "drawbridge_webhook_failure_policy_changes_total", Type: Counter,
		Help:   "How often the manager set the failure policy of the eviction webhook, by the policy that it set.",
		Labels: []Label{{Name: "policy", Values: failurePolicies}},
	}
	failurePolicyProofs = Metric{
		Name: "drawbridge_webhook_proofs_total", Type: Counter,
		Help:   "Dry-run evictions by which the leader checks whether the API server reaches the webhook.",
		Labels: []Label{{Name: "result", Values: []string{ProofReached, ProofUnreached}}},
	}
)

var failurePolicyMetrics = []Metric{failurePolicyPresent, failurePolicyChanges, failurePolicyProofs}

// FailurePolicy follows the failure policy of the eviction webhook, on the leader.
type FailurePolicy struct {
	present *prometheus.GaugeVec
	changes *prometheus.CounterVec
	proofs  *prometheus.CounterVec
}

// NewFailurePolicy registers the metrics of the failure policy. It panics if they
// are registered already.
func NewFailurePolicy(registerer prometheus.Registerer) *FailurePolicy {
	m := &FailurePolicy{
		present: failurePolicyPresent.gauge(registerer),
		changes: failurePolicyChanges.counter(registerer),
		proofs:  failurePolicyProofs.counter(registerer),
	}
	for _, result := range []string{ProofReached, ProofUnreached} {
		m.proofs.WithLabelValues(result)
	}
	return m
}

// Present sets what the configuration says; empty for no configuration.
func (m *FailurePolicy) Present(policy string) {
	for _, p := range failurePolicies {
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
