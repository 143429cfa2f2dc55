// Command drawbridge is the manager: admission webhook, request controller,
// evictor and requester leases.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

func main() {
	// A second signal ends the program immediately: after the first one, the default
	// behaviour is restored.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "drawbridge:", err)
		os.Exit(1)
	}
}
