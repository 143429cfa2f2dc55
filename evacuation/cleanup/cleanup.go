// Package cleanup removes what Drawbridge wrote to objects of others, so that it can be
// uninstalled and pods run as if it had never been there. It is a list of idempotent
// steps.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pageSize is how many objects are read at a time.
	pageSize = 500
	// pollInterval is how often an awaited state is checked.
	pollInterval = time.Second
	// undoPause is how long interceptors have after the last request was canceled: we
	// cannot watch what they undo, such as the mark on a virtual machine.
	undoPause = 3 * time.Second
	// stopTimeout is how long the managers may take to stop.
	stopTimeout = 90 * time.Second
	// settle is the pause between two passes. A replica that waits to lead takes a Lease
	// that became free within its retry period, 2 seconds.
	settle = 3 * time.Second
	// maxPasses is how often everything is removed before we report that it comes back.
	maxPasses = 5
	// giveBackTimeout is how long a Deployment's controller may take to observe the latest
	// spec. Before that, the future of a pod is unknown.
	giveBackTimeout = 15 * time.Second
	// callTimeout bounds each call.
	callTimeout = 30 * time.Second
)

// Options say what is to be removed.
type Options struct {
	// Namespace of the manager.
	Namespace string
	// WebhookConfiguration is deleted first; empty for none.
	WebhookConfiguration string
	// Deployment of the manager, which is scaled to 0; empty if the manager runs elsewhere
	// and is already stopped.
	Deployment string
	// LeaderLease is the name of the leader's Lease.
	LeaderLease string
	// Keep leaves the EvictionRequests and the leases of their requesters as they are.
	Keep bool
	// Wait is how long interceptors have to react to the withdrawal of the requests.
	Wait time.Duration
}

// Cleaner removes what Drawbridge has written.
type Cleaner struct {
	Options
	// Client reads from the API server.
	Client client.Client
	Clock  clock.WithTicker
	// Out gets a line for each change.
	Out io.Writer

	// changes counts what was changed.
	changes int
}

// step is one thing to do.
type step struct {
	name string
	do   func(context.Context) error
}

// prepare lists the steps that run once, while a manager runs.
func (c *Cleaner) prepare() []step {
	return []step{
		{"send no more evictions to Drawbridge", c.removeWebhook},
		{"end the maintenances", c.endMaintenances}, // While a manager runs that knows which nodes to uncordon.
		{"withdraw the requests", c.withdraw},       // The manager and the interceptors undo most of it themselves.
	}
}

// takeBack lists the steps that are repeated until nothing is left to do.
func (c *Cleaner) takeBack() []step {
	return []step{
		{"stop the manager", c.stop},                    // Otherwise it would restore what is removed next.
		{"clean the pods", c.cleanPods},                 // Before the budgets go: a pod is evicted only as budgets allow.
		{"remove the guard's budgets", c.removeBudgets}, // A label without a budget is harmless.
		{"delete the requests", c.deleteRequests},       // Clients that still follow them see them go.
		{"delete the leases", c.deleteLeases},
	}
}

// Run does all steps, even if some fail: the more is removed, the better. Its error lists
// all failures. It is done only after a pass that changed nothing: a stopping manager may
// have written meanwhile.
func (c *Cleaner) Run(ctx context.Context) error {
	failed := c.all(ctx, c.prepare())
	for pass := 1; ; pass++ {
		before := c.changes
		err := c.all(ctx, c.takeBack())
		switch {
		case err != nil:
			return errors.Join(failed, err)
		case c.changes == before:
			if failed == nil {
				c.sayf("nothing of Drawbridge is left on the objects of others")
			}
			return failed
		case pass == maxPasses:
			return errors.Join(failed, fmt.Errorf("there was something to take back in each of %d passes: somebody still writes it; stop every manager of Drawbridge, and run this again", pass))
		}
		if err := c.pause(ctx, settle); err != nil {
			return errors.Join(failed, err)
		}
	}
}

// all does the steps in their order, and returns what has failed.
func (c *Cleaner) all(ctx context.Context, steps []step) error {
	var errs []error
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			c.sayf("failed to %s: %v", s.name, err)
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}

// changedf counts a change and prints it.
func (c *Cleaner) changedf(format string, args ...any) {
	c.changes++
	c.sayf(format, args...)
}

// sayf prints a line. A failed write does not stop the cleanup.
func (c *Cleaner) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Out, format+"\n", args...)
}

// removeWebhook deletes the configuration: from then on no request is created and no
// eviction is delayed.
func (c *Cleaner) removeWebhook(ctx context.Context) error {
	if c.WebhookConfiguration == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: c.WebhookConfiguration}}
	switch err := c.Client.Delete(ctx, conf); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("delete ValidatingWebhookConfiguration %s: %w", c.WebhookConfiguration, err)
	default:
		c.changedf("ValidatingWebhookConfiguration %s: deleted", c.WebhookConfiguration)
	}
	return nil
}

// each calls do for all objects of a kind, page by page. An error of one page does not
// stop the others.
func each[L client.ObjectList](ctx context.Context, c *Cleaner, empty func() L, do func(context.Context, L) error, opts ...client.ListOption) error {
	var errs []error
	for next := ""; ; {
		// Decoding does not clear missing fields, so each page gets its own list.
		list := empty()
		if err := c.call(ctx, func(ctx context.Context) error {
			return c.Client.List(ctx, list, append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, opts...)...)
		}); err != nil {
			return errors.Join(append(errs, fmt.Errorf("list: %w", err))...)
		}
		if err := do(ctx, list); err != nil {
			errs = append(errs, err)
		}
		if next = list.GetContinue(); next == "" {
			return errors.Join(errs...)
		}
	}
}

// call makes one call with a deadline.
func (c *Cleaner) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return do(ctx)
}

// until waits for a state, at most that long, and reports whether it was reached.
func (c *Cleaner) until(ctx context.Context, most time.Duration, there func(context.Context) (bool, error)) (bool, error) {
	deadline := c.Clock.Now().Add(most)
	for {
		ok, err := there(ctx)
		if err != nil || ok {
			return ok, err
		}
		if !c.Clock.Now().Before(deadline) {
			return false, nil
		}
		if err := c.pause(ctx, pollInterval); err != nil {
			return false, err
		}
	}
}

func (c *Cleaner) pause(ctx context.Context, d time.Duration) error {
	timer := c.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gone reports a missing object, which is no error: someone else was faster.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
