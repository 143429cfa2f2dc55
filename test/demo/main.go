// Command demo shows the main job of Drawbridge on a real control plane: a
// kubectl drain that was never taught about interceptors waits for them. It
// exits with 0 only if everything it claims was seen to happen.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// patience bounds the whole demo, without the first build of the control plane.
const patience = 4 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &printer{to: os.Stdout, started: time.Now()}
	if err := run(ctx, p); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) { // Before stop, which cancels it, too.
			err = fmt.Errorf("interrupted: %w", err)
		}
		stop()
		p.linef("\nFAIL: %v", err)
		os.Exit(1) //nolint:gocritic // Everything started was ended by run.
	}
}

// printer writes whole lines, also when several speak at once.
type printer struct {
	mu      sync.Mutex
	to      io.Writer
	started time.Time
	step    int
}

func (p *printer) linef(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.to, format+"\n", args...)
}

// heading opens the next step.
func (p *printer) heading(text string) {
	p.step++
	p.linef("\n%d. %s", p.step, text)
}

// during says what goes on while work takes long.
func (p *printer) during(what string, work func() error) error {
	begun := time.Now()
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.linef("  %s (%.0f s so far)", what, time.Since(begun).Seconds())
			case <-done:
				return
			}
		}
	})
	err := work()
	close(done)
	waiting.Wait()
	return err
}
