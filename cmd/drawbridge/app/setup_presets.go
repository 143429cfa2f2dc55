package app

import (
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/internal/presets"
)

// setupPresets adds the controller that creates the chart's registrations and policies,
// if there are any.
func setupPresets(mgr ctrl.Manager, o Options) error {
	names := o.presets()
	if len(names) == 0 {
		return nil
	}
	c := &presets.Controller{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Clock: o.Clock, Namespace: o.Namespace, Names: names,
	}
	return c.SetupWithManager(mgr)
}

// presets are the names of the ConfigMaps.
func (o *Options) presets() []string {
	names := slices.Clone(o.EvacuationPresets)
	if o.Surge && o.SurgeRegistration != "" {
		names = append(names, o.SurgeRegistration)
	}
	return names
}
