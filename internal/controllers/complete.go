package controllers

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options say how a controller runs. Clock and Timeout are required.
type Options struct {
	// Clock is that of the queue, and of the wait for a refused write.
	Clock clock.WithTicker
	// Timeout limits one Reconcile with all of its calls.
	Timeout time.Duration
	// Workers is how many objects are handled at a time. Default 1.
	Workers int
	// Limiter spaces out the retries of errors. Default FastBackoff.
	Limiter Limiter
	// NewQueue makes the queue when the controller may start, on a leader when it is
	// elected, before any event is handled. Default NewQueue(Clock).
	NewQueue func(name string, limiter Limiter) Queue
	// Everywhere is a controller that runs on every replica, not on the leader only.
	Everywhere bool
}

// Complete adds a controller to its manager. name is also that of its queue in the
// workqueue_* metrics (statement 107).
func Complete(b *builder.Builder, name string, r reconcile.Reconciler, o Options) error {
	if err := b.Named(name).WithOptions(o.Controller()).Complete(Patient(o.Clock, r)); err != nil {
		return fmt.Errorf("set up controller %s: %w", name, err)
	}
	return nil
}

// Controller is the same for controller-runtime.
func (o Options) Controller() controller.Options {
	if o.Limiter == nil {
		o.Limiter = FastBackoff()
	}
	if o.NewQueue == nil {
		o.NewQueue = NewQueue(o.Clock)
	}
	return controller.Options{
		MaxConcurrentReconciles: o.Workers, NeedLeaderElection: new(!o.Everywhere),
		ReconciliationTimeout: o.Timeout, RateLimiter: o.Limiter, NewQueue: o.NewQueue,
	}
}
