package app

import (
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/taints"
)

// TaintOptions configure what is done for pods that taints delete.
type TaintOptions struct {
	// Enabled asks for their eviction while there is time.
	Enabled bool
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (o *TaintOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "taint-eviction", o.Enabled, "Request the eviction of intercepted pods that a NoExecute taint deletes when their tolerationSeconds are over.")
}

// setupTaints adds the controller of pods that taints delete, if enabled.
func setupTaints(mgr ctrl.Manager, o Options, known discovered, registry *registration.Registry) error {
	if !o.Taints.Enabled {
		return nil
	}
	live, err := liveClient(mgr, known.writes)
	if err != nil {
		return err
	}
	return (&taints.Controller{
		Client:    mgr.GetCache(),
		APIReader: mgr.GetAPIReader(),
		Requests:  live,
		Clock:     o.Clock,
		Resolver:  registry,
		OnChange:  registry.OnChange,
		Synced:    known.synced,
		Recorder:  mgr.GetEventRecorder(recorderName),
	}).SetupWithManager(mgr)
}
