package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	hookRuns = Metric{
		Name: "drawbridge_hook_runs_total", Type: Counter,
		Help: "Attempts and undos of EvacuationHooks that have ended, by result: lost ones were running when a manager ended.",
		Labels: []Label{
			{Name: "action", Values: []string{"job", "exec", "http", "wait"}},
			{Name: "result", Values: []string{"succeeded", "failed", "deadline", "lost", "undone", "undo_failed"}},
		},
	}
	hookRunning = Metric{Name: "drawbridge_hook_running", Type: Gauge, Help: "Attempts of EvacuationHooks that run now."}
	hookWaiting = Metric{Name: "drawbridge_hook_waiting", Type: Gauge, Help: "Pods whose EvacuationHook waits until others have ended."}
	hookHeld    = Metric{
		Name: "drawbridge_hook_held_pods", Type: Gauge, Help: "Pods that an EvacuationHook keeps because it has failed.",
		Labels: []Label{
			{Name: "namespace", Bound: "namespaces with an EvacuationHook that has failed"},
			{Name: "hook", Bound: "EvacuationHooks that have failed"},
		},
	}
)

var hookMetrics = []Metric{hookRuns, hookRunning, hookWaiting, hookHeld}

// Hooks owns the metrics of EvacuationHooks. Safe for concurrent use.
type Hooks struct {
	runs             *prometheus.CounterVec
	running, waiting prometheus.Gauge
	held             *prometheus.GaugeVec
}

// NewHooks registers the metrics with the registerer and returns them. A registerer
// that already has one of them panics: that is a wiring mistake.
func NewHooks(registerer prometheus.Registerer) *Hooks {
	return &Hooks{
		runs:    hookRuns.counter(registerer),
		running: hookRunning.gauge(registerer).WithLabelValues(),
		waiting: hookWaiting.gauge(registerer).WithLabelValues(),
		held:    hookHeld.gauge(registerer),
	}
}

// Ended counts an attempt or an undo that has ended.
func (m *Hooks) Ended(action, result string) { m.runs.WithLabelValues(action, result).Inc() }

// Attempts sets how many attempts run and how many pods wait.
func (m *Hooks) Attempts(running, waiting int) {
	m.running.Set(float64(running))
	m.waiting.Set(float64(waiting))
}

// Held sets how many pods a hook keeps.
func (m *Hooks) Held(namespace, hook string, pods int) {
	if pods == 0 {
		m.held.DeleteLabelValues(namespace, hook)
		return
	}
	m.held.WithLabelValues(namespace, hook).Set(float64(pods))
}
