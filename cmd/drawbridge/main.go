// Command drawbridge is the manager: admission webhook, request controller,
// evictor and requester leases.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	// Windows of EvictionBudgets are in the time zones of their authors. The image has no
	// database of them, and that of a node may be old.
	_ "time/tzdata"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/garbage"
)

func main() {
	// A second signal ends the program immediately: after the first one, the default
	// behaviour is restored.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	garbage.Pace()
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "drawbridge:", err)
		os.Exit(app.ExitCode(err))
	}
}
