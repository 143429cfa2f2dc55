package app

import (
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/vm"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/pdb/guard"
)

// GuardOptions configure the guard by budgets.
type GuardOptions struct {
	// Enabled: without it, labels are neither added nor removed, and have no effect.
	Enabled bool
	// Owner is the ClusterRole that owns the guard's budgets; empty for none.
	Owner string
	// ExcludedNamespaces are the namespaces that the webhook is not called for. Our own
	// is always one of them.
	ExcludedNamespaces []string
}

// defaultGuardOptions are the flags' defaults.
func defaultGuardOptions() GuardOptions {
	return GuardOptions{Enabled: true, Owner: "drawbridge-guard", ExcludedNamespaces: []string{"kube-system"}}
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (g *GuardOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&g.Enabled, "guard", g.Enabled, "Protect intercepted pods with PodDisruptionBudgets, also while Drawbridge is down.")
	fs.StringVar(&g.Owner, "guard-owner", g.Owner, "ClusterRole that owns these budgets, so that they are deleted with it; empty for no owner.")
	fs.StringSliceVar(&g.ExcludedNamespaces, "guard-excluded-namespace", g.ExcludedNamespaces, "Namespace without the webhook, where no pod is protected; may be repeated. The manager's own is always included.")
}

// validate calls check for everything that must hold.
func (g *GuardOptions) validate(check func(ok bool, format string, args ...any)) {
	check(g.Owner == "" || len(validation.IsDNS1123Subdomain(g.Owner)) == 0, "--guard-owner: %q is not the name of a ClusterRole", g.Owner)
	for _, namespace := range g.ExcludedNamespaces {
		check(len(validation.IsDNS1123Label(namespace)) == 0, "--guard-excluded-namespace: %q is not the name of a namespace", namespace)
	}
}

// gate answers the webhook and the evictor about guards. What is held stays so with
// the guard switched off.
func (g *GuardOptions) gate(holds guard.Holds) (*guard.Gate, error) {
	return guard.NewGate(g.Enabled, holds)
}

// setupGuard adds the controller of the guard, if enabled: otherwise the manager has no
// permission to label pods, and the budgets are gone.
func setupGuard(mgr ctrl.Manager, o Options, known discovered, registry *registration.Registry, policies *vm.Store, view *native.View) error {
	if !o.Guard.Enabled {
		return nil
	}
	c := &guard.Controller{
		Client:             mgr.GetClient(),
		APIReader:          mgr.GetAPIReader(),
		Clock:              o.Clock,
		Resolver:           registry,
		Registrations:      registry,
		OnChange:           registry.OnChange,
		Preflights:         o.preflights(policies.CachedPreflight),
		Holds:              policies,
		Native:             view,
		Synced:             known.synced,
		ExcludedNamespaces: append(slices.Clone(o.Guard.ExcludedNamespaces), o.Namespace),
		Owner:              o.Guard.Owner,
		Recorder:           mgr.GetEventRecorder(recorderName),
		Metrics:            metrics.NewGuard(o.Registerer),
	}
	return c.SetupWithManager(mgr)
}
