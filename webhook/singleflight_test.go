package webhook

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Others may wait for an attempt when the caller that began it goes away.
func TestASharedAttemptOutlivesTheCallerThatBeganIt(t *testing.T) {
	deadline := time.Now().Add(time.Hour)
	until, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	caller, leave := context.WithCancel(until)
	defer leave()
	var attempts group[string]
	began, finish, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	left := make(chan error, 1)
	go func() {
		_, err := attempts.do(caller, "key", func(ctx context.Context) (string, error) {
			close(began)
			<-finish
			if at, ok := ctx.Deadline(); !ok || !at.Equal(deadline) {
				t.Errorf("the attempt has the deadline %s (%t), want that of the caller", at, ok)
			}
			ended <- ctx.Err()
			return "", nil
		})
		left <- err
	}()
	<-began
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	close(finish)
	if err := <-ended; err != nil {
		t.Errorf("the attempt ended with its caller: %v", err)
	}
}
