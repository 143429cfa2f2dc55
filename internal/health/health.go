// Package health holds the readiness checks of the manager.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// checkTimeout bounds a check; a kubelet's probe gives up after a second by
// default.
const checkTimeout = time.Second

// Caches is ready once the informer caches are in sync. It is a runnable for all
// replicas.
type Caches struct {
	Cache  cache.Cache
	synced atomic.Bool
}

var _ manager.LeaderElectionRunnable = &Caches{}

// NeedLeaderElection is false: every replica answers admission from its cache.
func (c *Caches) NeedLeaderElection() bool { return false }

// Start waits for the caches and returns. It fails if they never synced although
// the context is alive.
func (c *Caches) Start(ctx context.Context) error {
	switch synced := c.Cache.WaitForCacheSync(ctx); {
	case synced:
		c.synced.Store(true)
	case ctx.Err() == nil:
		return errors.New("the caches did not sync")
	}
	return nil
}

// Synced reports whether the caches are in sync.
func (c *Caches) Synced() bool { return c.synced.Load() }

// Check is the readiness check.
func (c *Caches) Check(*http.Request) error {
	if !c.Synced() {
		return errors.New("the caches are not in sync yet")
	}
	return nil
}

// Shutdown is ready until Begin is called, so that no new calls reach a replica that is
// about to stop.
type Shutdown struct{ begun atomic.Bool }

// Begin makes the replica unready for good.
func (s *Shutdown) Begin() { s.begun.Store(true) }

// Begun reports whether Begin was called.
func (s *Shutdown) Begun() bool { return s.begun.Load() }

// Check is the readiness check.
func (s *Shutdown) Check(*http.Request) error {
	if s.Begun() {
		return errors.New("shutting down")
	}
	return nil
}

// Check makes a readiness check of a function, with a deadline.
func Check(f func(context.Context) error) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), checkTimeout)
		defer cancel()
		return f(ctx)
	}
}

// InOrder returns a check that fails with the first error of the checks.
func InOrder(checks ...healthz.Checker) healthz.Checker {
	return func(req *http.Request) error {
		for _, check := range checks {
			if err := check(req); err != nil {
				return err
			}
		}
		return nil
	}
}

// Checks are readiness checks by name.
type Checks map[string]healthz.Checker

// Add registers all checks, for example with a manager's AddReadyzCheck.
func (c Checks) Add(add func(name string, check healthz.Checker) error) error {
	for name, check := range c {
		if err := add(name, check); err != nil {
			return fmt.Errorf("add check %s: %w", name, err)
		}
	}
	return nil
}
