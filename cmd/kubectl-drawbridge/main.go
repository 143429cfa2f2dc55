// Command kubectl-drawbridge is a plugin of kubectl for people who drain nodes: it
// drains, says what is going on and why it is not finished, and stops it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

func main() {
	// A second signal ends the program at once, as after the first one the default
	// behaviour is back.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := app.NewCommand(cli.DefaultOptions()).ExecuteContext(ctx); err != nil {
		if text := app.Explain(err); text != "" {
			fmt.Fprintln(os.Stderr, text)
		}
		os.Exit(app.ExitCode(err))
	}
}
