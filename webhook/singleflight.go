package webhook

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"
)

// group lets concurrent calls with the same key share one attempt. The attempt does not
// end when the caller that began it goes away, since others wait for it, but it keeps
// that caller's deadline.
type group[T any] struct{ calls singleflight.Group }

// do runs f once for all callers that ask while it runs, and gives them its result. A
// caller whose context ends first gets the context's error.
func (g *group[T]) do(ctx context.Context, key string, f func(context.Context) (T, error)) (T, error) {
	done := g.calls.DoChan(key, func() (value any, err error) {
		defer func() {
			// singleflight would end the process.
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic in a shared attempt: %v", cause)
			}
		}()
		detached := context.WithoutCancel(ctx)
		if deadline, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			detached, cancel = context.WithDeadline(detached, deadline)
			defer cancel()
		}
		return f(detached)
	})
	select {
	case result := <-done:
		value, _ := result.Val.(T) // There is none after a panic.
		return value, result.Err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("wait for a shared attempt: %w", ctx.Err())
	}
}
