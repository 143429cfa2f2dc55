// Package waiting is how tests wait: for a state and never for time, with one bound for all.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Patience is how long a wait may see the same. It is meant for the slowest machine:
	// a test that needs less fails no earlier than one that needs more.
	Patience = 3 * time.Minute
	// longestWait is how long a wait may last that sees something new again and again.
	longestWait = 5 * Patience
)

// rarer are the pauses between two looks: what takes long may be looked at less often.
var rarer = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.3, Steps: 12, Cap: 250 * time.Millisecond}

// vainError is an error that no waiting helps.
type vainError struct{ error }

func (v vainError) Unwrap() error { return v.error }

// InVain marks what check says as final: For returns it at once.
func InVain(err error) error {
	if err == nil {
		return nil
	}
	return vainError{err}
}

// For calls check until it has no error; what says in words what is waited for. A check
// should wait for a state and not for an event, which may have been missed. Error: for
// three minutes check has said the same, or ctx ended; it has what check said last.
func For(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, giveUp := context.WithTimeoutCause(ctx, longestWait, fmt.Errorf("not within %s", longestWait))
	defer giveUp()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(Patience, func() { cancel(fmt.Errorf("the same for %s", Patience)) })
	defer patience.Stop()

	var last error
	err := rarer.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if vain := (vainError{}); errors.As(err, &vain) {
			return false, vain.error
		}
		// The end of the time itself explains less than what was before.
		if err != nil && (last == nil || ctx.Err() == nil) {
			if last == nil || last.Error() != err.Error() {
				patience.Reset(Patience)
			}
			last = err
		}
		return err == nil, nil
	})
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case cause == nil:
		return fmt.Errorf("wait for %s: %w", what, err)
	default:
		return fmt.Errorf("wait for %s: %w: %w", what, cause, last)
	}
}

// Eventually is [For] for a test, which fails at once if it was in vain.
func Eventually(tb testing.TB, what string, check func(context.Context) error) {
	tb.Helper()
	if err := For(tb.Context(), what, check); err != nil {
		tb.Fatal(err)
	}
}
