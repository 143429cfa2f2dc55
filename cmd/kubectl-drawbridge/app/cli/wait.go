package cli

import (
	"context"
	"time"
)

const (
	// ConfirmPatience is how long to wait for a manager to do what was requested.
	ConfirmPatience = 5 * time.Second
	confirmInterval = 250 * time.Millisecond
)

// HoldsWithin polls until a condition holds, for at most so long. It is no error if it does not.
func (o *Options) HoldsWithin(ctx context.Context, patience time.Duration, look func() (bool, error)) error {
	deadline := o.Clock.Now().Add(patience)
	tick := o.Clock.NewTicker(confirmInterval)
	defer tick.Stop()
	for {
		if done, err := look(); err != nil || done || o.Clock.Now().After(deadline) {
			return err
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return ErrInterrupted
		}
	}
}
