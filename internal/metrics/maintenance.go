package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// What NodeMaintenances cost: the values of the label object.
const (
	// MaintenanceWriteNode is a patch of a node.
	MaintenanceWriteNode = "node"
	// MaintenanceWritePod is a patch of a pod's conditions.
	MaintenanceWritePod = "pod"
	// MaintenanceWriteJoin is a request created or joined.
	MaintenanceWriteJoin = "join"
	// MaintenanceWriteWithdraw is a request left.
	MaintenanceWriteWithdraw = "withdraw"
	// MaintenanceWriteEvict is the eviction of a pod of a DaemonSet, which needs no request.
	MaintenanceWriteEvict = "evict"
	// MaintenanceWriteStatus is a status of a NodeMaintenance.
	MaintenanceWriteStatus = "status"
)

// States of pods: the values of the label state.
const (
	maintenancePending    = "pending"
	maintenanceEvacuating = "evacuating"
	maintenanceBlocking   = "blocking"
)

var (
	maintenanceCount = Metric{
		Name: "drawbridge_maintenances", Type: Gauge,
		Help:   "NodeMaintenances, by stage.",
		Labels: []Label{{Name: "stage", Values: valuesOf(v1alpha1.MaintenanceStages())}},
	}
	maintenancePods = Metric{
		Name: "drawbridge_maintenance_pods", Type: Gauge,
		Help:   "Pods that NodeMaintenances have to evacuate: all of them (pending), those being moved (evacuating), those without progress (blocking). A pod counts once for each maintenance.",
		Labels: []Label{{Name: "state", Values: []string{maintenancePending, maintenanceEvacuating, maintenanceBlocking}}},
	}
	maintenanceWrites = Metric{
		Name: "drawbridge_maintenance_writes_total", Type: Counter,
		Help: "API writes of the controllers of NodeMaintenances, by object.",
		Labels: []Label{{Name: "object", Values: []string{
			MaintenanceWriteNode, MaintenanceWritePod, MaintenanceWriteJoin, MaintenanceWriteWithdraw, MaintenanceWriteEvict, MaintenanceWriteStatus,
		}}},
	}
)

var maintenanceMetrics = []Metric{maintenanceCount, maintenancePods, maintenanceWrites}

// Maintenance counts what NodeMaintenances do. Safe for concurrent use.
type Maintenance struct {
	maintenances *prometheus.GaugeVec
	pods         *prometheus.GaugeVec
	writes       *prometheus.CounterVec

	mu sync.Mutex
	// seen are the last statuses, by name.
	seen map[string]maintenanceSeen
}

// maintenanceSeen is what counts of a status.
type maintenanceSeen struct {
	stage    v1alpha1.MaintenanceStage
	progress v1alpha1.MaintenanceProgress
}

// NewMaintenance registers the metrics of NodeMaintenances. It panics if they are
// registered already, like every MustRegister.
func NewMaintenance(registerer prometheus.Registerer) *Maintenance {
	m := &Maintenance{
		maintenances: maintenanceCount.gauge(registerer),
		pods:         maintenancePods.gauge(registerer),
		writes:       maintenanceWrites.counter(registerer),
		seen:         map[string]maintenanceSeen{},
	}
	for _, stage := range maintenanceCount.Labels[0].Values {
		m.maintenances.WithLabelValues(stage).Set(0)
	}
	for _, state := range maintenancePods.Labels[0].Values {
		m.pods.WithLabelValues(state).Set(0)
	}
	return m
}

// Observe sets the status of a maintenance.
func (m *Maintenance) Observe(name string, status v1alpha1.NodeMaintenanceStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(m.seen[name], -1)
	m.seen[name] = maintenanceSeen{status.Stage, status.Progress}
	m.count(m.seen[name], 1)
}

// Forget removes a maintenance that is gone.
func (m *Maintenance) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(m.seen[name], -1)
	delete(m.seen, name)
}

func (m *Maintenance) count(s maintenanceSeen, sign float64) {
	if s.stage == "" {
		return
	}
	m.maintenances.WithLabelValues(string(s.stage)).Add(sign)
	m.pods.WithLabelValues(maintenancePending).Add(sign * float64(s.progress.PodsPendingEvacuation))
	m.pods.WithLabelValues(maintenanceEvacuating).Add(sign * float64(s.progress.PodsEvacuating))
	m.pods.WithLabelValues(maintenanceBlocking).Add(sign * float64(s.progress.PodsBlocking))
}

// Wrote counts one write of an object, one of the constants.
func (m *Maintenance) Wrote(object string) { m.writes.WithLabelValues(object).Inc() }
