package webhook

import (
	"context"
	"fmt"
	"sync"
)

// flights lets concurrent calls with the same key share one attempt. The attempt
// does not end when the caller that began it goes away, since others wait for
// it, but it keeps that caller's deadline.
type flights[T any] struct {
	mu     sync.Mutex
	flying map[string]*flight[T]
}

type flight[T any] struct {
	landed chan struct{}
	value  T
	err    error
}

// do runs f once for all who ask while it runs, and gives them its result. A
// caller whose context ends first gets the context's error.
func (s *flights[T]) do(ctx context.Context, key string, f func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	current, ok := s.flying[key]
	if !ok {
		current = &flight[T]{landed: make(chan struct{})}
		if s.flying == nil {
			s.flying = map[string]*flight[T]{}
		}
		s.flying[key] = current
		go s.run(ctx, key, current, f)
	}
	s.mu.Unlock()

	select {
	case <-current.landed:
		return current.value, current.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("wait for a shared attempt: %w", ctx.Err())
	}
}

func (s *flights[T]) run(ctx context.Context, key string, current *flight[T], f func(context.Context) (T, error)) {
	defer func() {
		// A panic in here would end the process: nobody above us recovers it.
		if cause := recover(); cause != nil {
			current.err = fmt.Errorf("panic in a shared attempt: %v", cause)
		}
		s.mu.Lock()
		delete(s.flying, key)
		s.mu.Unlock()
		close(current.landed)
	}()
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		detached, cancel = context.WithDeadline(detached, deadline)
		defer cancel()
	}
	current.value, current.err = f(detached)
}
