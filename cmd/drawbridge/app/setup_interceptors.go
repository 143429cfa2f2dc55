package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// setupRegistry makes the one registry of this replica: the engine and the
// webhooks get their answers from the same. The replica is ready when it is in
// sync. The leader writes the status of the registrations.
func setupRegistry(mgr ctrl.Manager, o Options) (*registration.Registry, error) {
	registry := registration.NewRegistry(registration.Options{
		Namespace:       o.Namespace,
		AllowedReserved: o.AllowedReservedNames,
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
		registry.SetupWithCache(context.Background(), mgr.GetCache()), // It does not wait for anything.
		mgr.Add(registry),
		mgr.AddReadyzCheck("registrations", ready),
		status.SetupWithManager(mgr),
	); err != nil {
		return nil, fmt.Errorf("set up the registry of interceptors: %w", err)
	}
	return registry, nil
}
