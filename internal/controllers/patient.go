package controllers

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// refusal is an error that no attempt before RetryAt can help (internal/refused.Error).
type refusal interface {
	error
	RetryAt() time.Time
}

// several is what errors.Join returns.
type several interface{ Unwrap() []error }

// Patient lets a reconciler wait for as long as the API server's refusals last: their cause
// is not ours, they are told already, and the back-off of errors is shorter. What it wants to
// do earlier than that (its Result), it does.
func Patient(c clock.PassiveClock, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		at, only := retryAt(err)
		if err == nil || !only {
			return result, err
		}
		log.FromContext(ctx).V(1).Info("A write is refused, waiting", "until", at, "reason", err.Error())
		wait := max(at.Sub(c.Now()), time.Millisecond)
		if result.RequeueAfter == 0 || wait < result.RequeueAfter {
			result.RequeueAfter = wait
		}
		return result, nil
	})
}

// retryAt is the earliest time at which one of the refusals may have ended, and whether err
// consists of refusals only.
func retryAt(err error) (at time.Time, only bool) {
	var joined several
	if !errors.As(err, &joined) {
		var r refusal
		if !errors.As(err, &r) {
			return time.Time{}, false
		}
		return r.RetryAt(), true
	}
	for _, part := range joined.Unwrap() {
		t, only := retryAt(part)
		if !only {
			return time.Time{}, false
		}
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at, !at.IsZero()
}
