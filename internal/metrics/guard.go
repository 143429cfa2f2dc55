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
	// GuardLabelLeft: it should be open, but its controller selects it by the label.
	GuardLabelLeft = "label_left"
)

// What is counted of the guard's budgets: the values of the label state.
const (
	// GuardBudgetInForce: it refuses evictions, and is as the guard wrote it.
	GuardBudgetInForce = "in_force"
	// GuardBudgetChanged: it refuses evictions, and something else writes it, too.
	GuardBudgetChanged = "changed"
	// GuardBudgetNotInForce: it protects nobody, or not yet.
	GuardBudgetNotInForce = "not_in_force"
	// GuardBudgetRefused: there is none, because the cluster refuses it.
	GuardBudgetRefused = "refused"
	// GuardBudgetNameTaken: a budget of somebody else has its name.
	GuardBudgetNameTaken = "name_taken"
)

var (
	guardStates       = []string{GuardClosed, GuardHeld, GuardUnguarded, GuardOtherBudget, GuardLabelLeft}
	guardBudgetStates = []string{GuardBudgetInForce, GuardBudgetChanged, GuardBudgetNotInForce, GuardBudgetRefused, GuardBudgetNameTaken}
)

var (
	guardPods = Metric{
		Name: "drawbridge_guard_pods", Type: Gauge,
		Help:   "Pods whose guard is closed or should be, by state.",
		Labels: []Label{{Name: "state", Values: guardStates}},
	}
	guardBudgets = Metric{
		Name: "drawbridge_guard_budgets", Type: Gauge,
		Help:   "Namespaces with the guard's budget, or another one of its name, by state.",
		Labels: []Label{{Name: "state", Values: guardBudgetStates}},
	}
	guardLabels = Metric{
		Name: "drawbridge_guard_label_writes_total", Type: Counter,
		Help:   "How often the guard's label was set on a pod (close) or removed (open).",
		Labels: []Label{{Name: "change", Values: []string{"close", "open"}}},
	}
)

var guardMetrics = []Metric{guardPods, guardBudgets, guardLabels}

// Guard counts what the guard does. Safe for concurrent use.
type Guard struct {
	pods    *prometheus.GaugeVec
	budgets *prometheus.GaugeVec
	labels  *prometheus.CounterVec

	mu sync.Mutex
	// states are those of the pods that count.
	states map[types.NamespacedName]string
	// budgetStates are those of the budgets, by namespace.
	budgetStates map[string]string
}

// NewGuard registers the metrics of the guard. It panics if they are registered
// already, like every MustRegister.
func NewGuard(registerer prometheus.Registerer) *Guard {
	m := &Guard{
		pods:         guardPods.gauge(registerer),
		budgets:      guardBudgets.gauge(registerer),
		labels:       guardLabels.counter(registerer),
		states:       map[types.NamespacedName]string{},
		budgetStates: map[string]string{},
	}
	for _, state := range guardStates {
		m.pods.WithLabelValues(state).Set(0)
	}
	for _, state := range guardBudgetStates {
		m.budgets.WithLabelValues(state).Set(0)
	}
	return m
}

// Observe sets the state of a pod; empty means that it does not count.
func (m *Guard) Observe(pod types.NamespacedName, state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	observe(m.pods, m.states, pod, state)
}

// ObserveBudget sets the state of a namespace's budget; empty means that it has none.
func (m *Guard) ObserveBudget(namespace, state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	observe(m.budgets, m.budgetStates, namespace, state)
}

// observe counts the state of what has the key in place of the one before.
func observe[K comparable](gauge *prometheus.GaugeVec, states map[K]string, key K, state string) {
	before := states[key]
	if before == state {
		return
	}
	if before != "" {
		gauge.WithLabelValues(before).Dec()
	}
	if state == "" {
		delete(states, key)
		return
	}
	states[key] = state
	gauge.WithLabelValues(state).Inc()
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
