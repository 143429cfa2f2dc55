// Package dashboard is the command that serves the dashboard on this machine. Its parts:
// guard lets only the user's browser in, state watches the cluster, page makes pages of that,
// live sends what has changed, act is what can be done, and server puts them together.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/act"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/guard"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/server"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
)

const (
	// headerPatience is how long a browser may take to say what it wants.
	headerPatience = 10 * time.Second
	idlePatience   = 2 * time.Minute
	maxHeader      = 64 << 10
	// endPatience is how long what is being answered may take at the end.
	endPatience = 5 * time.Second
	maxPort     = 65535
)

// Parts are what the program adds to the dashboard.
type Parts struct {
	// Actions of the options.
	Actions func(*cli.Options) act.Actions
	// Pages beside those of package page.
	Pages []page.Page
	// Version of the plugin.
	Version string
}

type options struct {
	*cli.Options
	Parts
	port           int
	open, readOnly bool
}

// NewCommand returns the command dashboard.
func NewCommand(o *cli.Options, parts Parts) *cobra.Command {
	d := &options{Options: o, Parts: parts}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show the drains of the cluster in a browser",
		Long: `Serve pages about drains, nodes, pods, interceptors and budgets on this machine, for
your own browser: open the address that is printed. It has a token, so keep it to
yourself. Nothing is installed in the cluster, and everything is read and done with the
rights of your kubeconfig; what you may not read is left out, and the pages say so.

Each action is confirmed on a page of its own, which shows the command that does the
same. With --read-only there are none.

^C ends it.`,
		Example: `  kubectl drawbridge dashboard --open
  kubectl drawbridge dashboard --read-only --port=8081
  kubectl drawbridge dashboard export --node=node-1 > drain.html`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.port < 0 || d.port > maxPort {
				return fmt.Errorf("--port must be from 0 to %d, but is %d; 0 takes a free one", maxPort, d.port)
			}
			return d.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&d.port, "port", 0, "port on 127.0.0.1; 0 takes a free one")
	flags.BoolVar(&d.open, "open", false, "open the page in the browser")
	flags.BoolVar(&d.readOnly, "read-only", false, "offer no actions")
	cmd.AddCommand(newExport(d))
	return cmd
}

// connect reads who we are, so that a cluster that does not answer is an error at once.
func (d *options) connect(ctx context.Context) (*cli.Connection, error) {
	c, err := d.Connect()
	if err != nil {
		return nil, err
	}
	switch _, err := c.WhoAmI(ctx); {
	case err == nil, apierrors.IsForbidden(err), apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return c, nil // Whoever may not ask that, or cannot, may still read.
	default:
		return nil, err
	}
}

func (d *options) run(ctx context.Context) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	// Nothing but this machine can reach it.
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)))
	if err != nil {
		return fmt.Errorf("listen on port %d of this machine: %w: choose another --port, or leave it out", d.port, err)
	}
	defer func() { _ = listener.Close() }() // The server closes it, too.
	watching, stop := context.WithCancel(ctx)
	defer stop()
	store, err := state.New(d.Options, c, d.Version)
	if err != nil {
		return err
	}
	if err := store.Start(watching); err != nil && ctx.Err() == nil {
		return err
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("listen on %s: it is no TCP address", listener.Addr())
	}
	door, err := guard.New(address.Port)
	if err != nil {
		return err
	}
	door.ReadOnly = d.readOnly
	o := server.Options{
		Clock: d.Clock, Guard: door, Source: store, Backend: newBackend(d.Options, c), Pages: append(page.Pages(), d.Pages...), Cluster: d.cluster(),
	}
	if !d.readOnly {
		o.Actions = d.Actions(d.Options)
	}
	s := &http.Server{
		Handler: server.Handler(o), ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return watching },
	}
	fmt.Fprintf(d.Out, "The dashboard is at %s\n", door.URL())
	fmt.Fprintln(d.ErrOut, "Anyone on this machine who knows the address can open it. ^C ends the dashboard.")
	if d.open {
		if err := open(ctx, door.URL()); err != nil {
			fmt.Fprintf(d.ErrOut, "Your browser could not be started (%v): open the address yourself.\n", err)
		}
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the dashboard: %w", err)
	case <-ctx.Done():
	}
	stop() // Ends the streams, which would never end by themselves.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if err := s.Shutdown(ending); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end the dashboard: %w", err)
	}
	return nil
}

// cluster is what the kubeconfig calls the cluster.
func (d *options) cluster() string {
	raw, err := d.Config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	if d.Config.Context != nil && *d.Config.Context != "" {
		return *d.Config.Context
	}
	return raw.CurrentContext
}

// open starts the user's browser and does not wait for it.
func open(ctx context.Context, address string) error {
	program, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	if err := cmd.Start(); err != nil {
		return err //nolint:wrapcheck // It names the program.
	}
	go func() { _ = cmd.Wait() }() // Only so that it leaves nothing behind.
	return nil
}
