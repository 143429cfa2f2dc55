package app

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/deletioncost"
)

// setupDeletionCost adds the controller of deletion costs, if enabled: otherwise the manager
// has no permission of its own to annotate pods.
func setupDeletionCost(mgr ctrl.Manager, o Options) error {
	if !o.PodDeletionCost {
		return nil
	}
	return (&deletioncost.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Clock: o.Clock}).SetupWithManager(mgr)
}
