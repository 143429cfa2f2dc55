package app

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// watchInterval is how often a watched status is read.
const watchInterval = 2 * time.Second

// watchStatus prints the status whenever it changes, until ^C. Changed ages alone do
// not count.
func (o *statusCommand) watchStatus(ctx context.Context, c *cli.Connection, node string) error {
	if o.Output != "" && o.Output != cli.FormatWide {
		return fmt.Errorf("--watch is for people: it goes with -o wide only, not with -o %s", o.Output)
	}
	out := o.Out
	defer func() { o.Out = out }()
	tick := o.Clock.NewTicker(watchInterval)
	defer tick.Stop()
	began := o.Clock.Now()
	last := ""
	for {
		var now bytes.Buffer
		o.Out = &now
		// Compared as of the same moment, so that ages do not count.
		f, err := o.gatherStatus(ctx, c, node)
		if ctx.Err() != nil {
			return cli.ErrInterrupted
		}
		if err != nil {
			return err
		}
		if err := o.print(f, began); err != nil {
			return err
		}
		if now.String() != last {
			if last != "" {
				fmt.Fprintln(out)
			}
			last = now.String()
			o.Out = out
			if err := o.print(f, o.Clock.Now()); err != nil {
				return err
			}
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return cli.ErrInterrupted
		}
	}
}
