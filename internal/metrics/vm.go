package metrics

import "github.com/prometheus/client_golang/prometheus"

// VM counts what the interceptors of EvacuationPolicies do.
type VM struct {
	writes   *prometheus.CounterVec
	verdicts *prometheus.CounterVec
}

// NewVM registers the metrics of EvacuationPolicies. It panics if they are
// registered already, like every MustRegister.
//
//   - drawbridge_evacuation_writes_total{policy, write} counts the writes to
//     workloads and migrations that succeeded. write is mark, unmark,
//     create_migration or delete_migration.
//   - drawbridge_evacuation_outcomes_total{policy, outcome} counts the evacuations
//     that ended. outcome is moved, passed, refused, gave_up_hold or
//     gave_up_evict.
func NewVM(registerer prometheus.Registerer) *VM {
	m := &VM{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_evacuation_writes_total",
			Help: "Writes to workloads and their migrations by an EvacuationPolicy.",
		}, []string{"policy", "write"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drawbridge_evacuation_outcomes_total",
			Help: "Ends of evacuations by an EvacuationPolicy.",
		}, []string{"policy", "outcome"}),
	}
	registerer.MustRegister(m.writes, m.verdicts)
	return m
}

// Wrote counts one write.
func (m *VM) Wrote(policy, write string) {
	if m != nil {
		m.writes.WithLabelValues(policy, write).Inc()
	}
}

// Ended counts one evacuation that ended.
func (m *VM) Ended(policy, outcome string) {
	if m != nil {
		m.verdicts.WithLabelValues(policy, outcome).Inc()
	}
}

// Forget removes the series of a policy that is gone.
func (m *VM) Forget(policy string) {
	if m != nil {
		m.writes.DeletePartialMatch(prometheus.Labels{"policy": policy})
		m.verdicts.DeletePartialMatch(prometheus.Labels{"policy": policy})
	}
}
