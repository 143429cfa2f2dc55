package metrics

import "github.com/prometheus/client_golang/prometheus"

// policyLabel is the name of an EvacuationPolicy.
var policyLabel = Label{Name: "policy", Bound: "the existing EvacuationPolicies; administrators create them"}

var (
	vmWrites = Metric{
		Name: "drawbridge_evacuation_writes_total", Type: Counter,
		Help:   "Writes to workloads and their migrations by an EvacuationPolicy.",
		Labels: []Label{policyLabel, {Name: "write", Values: []string{"mark", "unmark", "create_migration", "delete_migration"}}},
	}
	vmUntaken = Metric{
		Name: "drawbridge_evacuation_writes_untaken_total", Type: Counter,
		Help:   "Marks by an EvacuationPolicy that were discarded, or that the API server refused (rejected).",
		Labels: []Label{policyLabel, {Name: "reason", Values: []string{"discarded", "rejected"}}},
	}
	vmOutcomes = Metric{
		Name: "drawbridge_evacuation_outcomes_total", Type: Counter,
		Help:   "Finished evacuations by an EvacuationPolicy, by outcome.",
		Labels: []Label{policyLabel, {Name: "outcome", Values: []string{"moved", "passed", "refused", "gave_up_hold", "gave_up_evict"}}},
	}
)

var vmMetrics = []Metric{vmWrites, vmUntaken, vmOutcomes}

// VM counts what the interceptors of EvacuationPolicies do.
type VM struct {
	writes   *prometheus.CounterVec
	untaken  *prometheus.CounterVec
	verdicts *prometheus.CounterVec
}

// NewVM registers the metrics of EvacuationPolicies. It panics if they are
// registered already, like every MustRegister.
func NewVM(registerer prometheus.Registerer) *VM {
	return &VM{writes: vmWrites.counter(registerer), untaken: vmUntaken.counter(registerer), verdicts: vmOutcomes.counter(registerer)}
}

// Wrote counts one write.
func (m *VM) Wrote(policy, write string) {
	m.writes.WithLabelValues(policy, write).Inc()
}

// Untaken counts one mark that did not last, or was refused.
func (m *VM) Untaken(policy, reason string) {
	m.untaken.WithLabelValues(policy, reason).Inc()
}

// Ended counts one evacuation that ended.
func (m *VM) Ended(policy, outcome string) {
	m.verdicts.WithLabelValues(policy, outcome).Inc()
}

// Forget removes the series of a policy that is gone.
func (m *VM) Forget(policy string) {
	m.writes.DeletePartialMatch(prometheus.Labels{"policy": policy})
	m.untaken.DeletePartialMatch(prometheus.Labels{"policy": policy})
	m.verdicts.DeletePartialMatch(prometheus.Labels{"policy": policy})
}
