package app

import (
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/evacuation/maintenance"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// MaintenanceOptions configure NodeMaintenances.
type MaintenanceOptions struct {
	// Enabled: without it NodeMaintenances are not processed, and existing ones cannot be
	// deleted.
	Enabled bool
	// EvacuationWait is how long a pod without interceptors is left to its owner, after
	// the condition EvacuationRequest was set (KEP-4212, "Pod API").
	EvacuationWait time.Duration
}

// defaultMaintenanceOptions are the flags' defaults.
func defaultMaintenanceOptions() MaintenanceOptions {
	return MaintenanceOptions{Enabled: true, EvacuationWait: maintenance.DefaultWait}
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (m *MaintenanceOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&m.Enabled, "maintenance", m.Enabled, "Cordon and drain nodes as NodeMaintenances define.")
	fs.DurationVar(&m.EvacuationWait, "maintenance-evacuation-wait", m.EvacuationWait, "How long a pod without interceptors is left to its owner before a NodeMaintenance requests its eviction; 0 requests it immediately. KEP-4212 uses 3m, for clusters with owners that set EvacuationInitiated.")
}

// validate calls check for everything that must hold.
func (m *MaintenanceOptions) validate(check func(ok bool, format string, args ...any)) {
	check(m.EvacuationWait >= 0, "--maintenance-evacuation-wait must not be negative, but is %s", m.EvacuationWait)
}

// setupMaintenance adds the controllers of NodeMaintenances, if enabled: otherwise the
// manager has no permission to patch nodes.
func setupMaintenance(mgr ctrl.Manager, o Options, known discovered, resolver registration.Resolver) error {
	if !o.Maintenance.Enabled {
		return nil
	}
	live, err := liveClient(mgr, known.writes)
	if err != nil {
		return err
	}
	evict, err := evictor.NewEviction(mgr.GetConfig())
	if err != nil {
		return err
	}
	return (&maintenance.Controller{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Requests:  live,
		Evict:     evict,
		Clock:     o.Clock,
		Resolver:  resolver,
		Synced:    known.synced,
		Recorder:  mgr.GetEventRecorder(recorderName),
		Metrics:   metrics.NewMaintenance(o.Registerer),
		Policy: maintenance.PodPolicy{
			Wait: o.Maintenance.EvacuationWait,
			// Half of the time that an interceptor may be silent before the next one gets
			// its turn. Owners get the same.
			SilentAfter:      o.Policy.HeartbeatDeadline / 2,
			OwnerDeadline:    o.Policy.HeartbeatDeadline,
			TerminatingAfter: maintenance.DefaultTerminatingAfter,
		},
	}).SetupWithManager(mgr)
}
