package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// What is counted of pods: the values of the label state.
const (
	// GuardClosed: the pod is protected.
	GuardClosed = "closed"
	// GuardHeld: it is, although its interceptors are done.
	GuardHeld = "held"
	// GuardUnguarded: it should be, and is not labeled yet.
	GuardUnguarded = "unguarded"
	// GuardOtherBudget: it should be, but a budget of somebody else selects it.
	GuardOtherBudget = "other_budget"
)

var guardStates = []string{GuardClosed, GuardHeld, GuardUnguarded, GuardOtherBudget}

var (
	guardPods = Metric{
		Name: "drawbridge_guard_pods", Type: Gauge,
		Help:   "Pods whose guard is closed or should be, by state.",
		Labels: []Label{{Name: "state", Values: guardStates}},
	}
	guardLabels = Metric{
		Name: "drawbridge_guard_label_writes_total", Type: Counter,
		Help:   "Labels of the guard put on pods (close) and taken off (open).",
		Labels: []Label{{Name: "change", Values: []string{"close", "open"}}},
	}
)

var guardMetrics = []Metric{guardPods, guardLabels}

// Guard counts what the guard does. Safe for concurrent use.
type Guard struct {
	pods   *prometheus.GaugeVec
	labels *prometheus.CounterVec

	mu sync.Mutex
	// states are those of the pods that count.
	states map[types.NamespacedName]string
}

// NewGuard registers the metrics of the guard. It panics if they are registered
// already, like every MustRegister.
func NewGuard(registerer prometheus.Registerer) *Guard {
	m := &Guard{
		pods:   guardPods.gauge(registerer),
		labels: guardLabels.counter(registerer),
		states: map[types.NamespacedName]string{},
	}
	for _, state := range guardStates {
		m.pods.WithLabelValues(state).Set(0)
	}
	return m
}

// Observe sets the state of a pod; empty means that it does not count.
func (m *Guard) Observe(pod types.NamespacedName, state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.states[pod]
	if before == state {
		return
	}
	if before != "" {
		m.pods.WithLabelValues(before).Dec()
	}
	if state == "" {
		delete(m.states, pod)
		return
	}
	m.states[pod] = state
	m.pods.WithLabelValues(state).Inc()
}

// Forget removes a pod that is gone.
func (m *Guard) Forget(pod types.NamespacedName) { m.Observe(pod, "") }

// Labeled counts one label.
func (m *Guard) Labeled(closed bool) {
	change := "open"
	if closed {
		change = "close"
	}
	m.labels.WithLabelValues(change).Inc()
}
