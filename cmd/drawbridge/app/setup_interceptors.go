package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// setupRegistry creates the registry of this replica, which the engine and the webhooks
// share. The replica is ready when it is in sync. The leader writes the status of the
// registrations. self is our own user name.
func setupRegistry(mgr ctrl.Manager, o Options, self string, view *native.View) (*registration.Registry, error) {
	registry := registration.NewRegistry(registration.Options{
		Namespace:       o.Namespace,
		AllowedReserved: o.AllowedReservedNames,
		Account:         self,
		Hooks:           o.Hooks.Enabled,
		Budgets:         o.Budgets.Enabled,
		Native:          view.Engaged,
		NativeKnown:     view.Known,
		Metrics:         metrics.NewRegistrations(o.Registerer),
	})
	status := &registration.StatusReconciler{Client: mgr.GetClient(), Cache: mgr.GetCache(), Registry: registry, Clock: o.Clock}
	ready := func(*http.Request) error {
		if !registry.Synced() {
			return registration.ErrNotSynced
		}
		return nil
	}
	if err := errors.Join(
		registry.SetupWithCache(context.Background(), mgr.GetCache()), // It does not block.
		mgr.Add(registry),
		mgr.AddReadyzCheck("registrations", ready),
		status.SetupWithManager(mgr),
		setupHooks(mgr, o, status, view),
	); err != nil {
		return nil, fmt.Errorf("set up the registry of interceptors: %w", err)
	}
	return registry, nil
}
