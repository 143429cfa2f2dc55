package app

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/request"
)

// setupDescheduler adds the hand-shake with the descheduler, if any of it is
// switched on: without, the manager has no permission to annotate pods.
func setupDescheduler(mgr ctrl.Manager, o Options, known learnt, registry *interceptor.Registry) error {
	if !o.DeschedulerMark && !o.DeschedulerEvictOnly {
		return nil
	}
	return (&request.Descheduler{
		Client:         mgr.GetClient(),
		APIReader:      mgr.GetAPIReader(),
		Clock:          o.Clock,
		MarkInProgress: o.DeschedulerMark,
		MarkEvictOnly:  o.DeschedulerEvictOnly,
		Resolver:       registry,
		OnChange:       registry.OnChange,
		Synced:         known.synced,
	}).SetupWithManager(mgr)
}
