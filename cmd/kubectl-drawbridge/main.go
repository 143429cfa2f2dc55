// Command kubectl-drawbridge is a kubectl plugin for people who drain nodes: it drains
// nodes, shows the progress and what blocks it, and stops drains.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	// Windows of EvictionBudgets are in the time zones of their authors, which this machine
	// may not know.
	_ "time/tzdata"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

func main() {
	// A second signal ends the program immediately: after the first one, the default
	// behaviour is restored.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := app.NewCommand(cli.DefaultOptions()).ExecuteContext(ctx); err != nil {
		if text := app.Explain(err); text != "" {
			fmt.Fprintln(os.Stderr, text)
		}
		os.Exit(app.ExitCode(err))
	}
}
