package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/descheduler"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
)

// setupDescheduler adds the handshake with the descheduler, if any of it is enabled:
// otherwise the manager has no permission to annotate pods.
func setupDescheduler(mgr ctrl.Manager, o Options, known discovered, registry *registration.Registry) error {
	if !o.DeschedulerMark && !o.DeschedulerEvictOnly {
		return nil
	}
	var except labels.Selector
	if o.DeschedulerExcept != "" {
		var err error
		if except, err = labels.Parse(o.DeschedulerExcept); err != nil {
			return fmt.Errorf("parse --descheduler-except: %w", err)
		}
	}
	return (&descheduler.Reconciler{
		Client:         mgr.GetClient(),
		APIReader:      mgr.GetAPIReader(),
		Clock:          o.Clock,
		MarkInProgress: o.DeschedulerMark,
		Except:         except,
		MarkEvictOnly:  o.DeschedulerEvictOnly,
		Resolver:       registry,
		OnChange:       registry.OnChange,
		Synced:         known.synced,
	}).SetupWithManager(mgr)
}
