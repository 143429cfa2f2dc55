package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// realClock is the only clock of this package: what it waits for are processes.
var realClock = clock.RealClock{}

// lockFile takes an exclusive lock that the kernel gives back when this process
// ends, however it ends. waiting is called now and every 15 seconds while
// somebody else has it. Error: ctx ended, or the file cannot be locked.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	stop := func() {}
	defer func() { stop() }()
	for attempt := 0; ; attempt++ {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// Closing gives the lock back. The file stays: removing it would let
			// a third process lock a new one beside whoever waits for this.
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if attempt == 0 {
			waiting()
			stop = every(15*time.Second, waiting)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
		case <-realClock.After(200 * time.Millisecond):
		}
	}
}

// every calls f each period until the returned function has returned.
func every(period time.Duration, f func()) (stop func()) {
	ticker := realClock.NewTicker(period)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-ticker.C():
				f()
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-done
	}
}
