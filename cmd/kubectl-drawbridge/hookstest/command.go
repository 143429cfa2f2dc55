package hookstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
)

// options are the flags of hooks test.
type options struct {
	*cli.Options
	pod     string
	dryRun  bool
	timeout time.Duration
}

// NewCommand returns the command; completeHook completes the name of a hook.
func NewCommand(o *cli.Options, completeHook cobra.CompletionFunc) *cobra.Command {
	t := &options{Options: o}
	cmd := &cobra.Command{
		Use:   "test NAME --pod=POD",
		Short: "Run a hook for a pod now, without an eviction",
		Long: `Run a hook for a pod that it covers, and then its undo, as for an eviction. The pod
stays. What the hook does is real: its Job, its command or its request.

It creates an EvictionRequest that evicts nothing, and follows it to its end. ^C and
--timeout cancel the test: what runs is stopped, and the undo runs. A pod whose eviction
is requested is refused, and so is one with interceptors before the hook: they would run,
too.

With --dry-run, nothing runs: it prints the Job as the API server would store it, the
command, the request without what is in its Secret, or the value of the condition now.

You need the verbs get, list, watch, create, patch and delete on evictionrequests, get,
list and watch on evacuationhooks, get on pods, and delete on the pod, as for everyone
who requests an eviction. The ClusterRole drawbridge-operator has them. With --dry-run
you need list on evacuationhooks, get on pods and on the workload of a wait, and create
on jobs for a Job. Without list on evictioninterceptors there is a warning: those that
come before the hook are not known.`,
		Example: `  kubectl drawbridge hooks test dump --pod=ledger-0 -n shop
  kubectl drawbridge hooks test dump --pod=ledger-0 -n shop --dry-run`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeHook,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case t.pod == "":
				return errors.New("--pod is required: kubectl drawbridge hooks NAME lists the pods that a hook covers")
			case t.timeout < 0:
				return fmt.Errorf("--timeout must not be negative, but is %s", t.timeout)
			}
			c, err := o.Connect()
			if err != nil {
				return err
			}
			defer func() { o.PrintWarnings(c) }()
			return t.run(cmd.Context(), c, args[0])
		},
	}
	cmd.Flags().StringVar(&t.pod, "pod", "", "the pod; required")
	cmd.Flags().BoolVar(&t.dryRun, "dry-run", false, "print what would run, and run nothing")
	cmd.Flags().DurationVar(&t.timeout, "timeout", 0, "cancel the test after this time, 0 for never")
	cli.Must(cmd.RegisterFlagCompletionFunc("pod", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return o.CompletePod(cmd, nil, prefix)
	}))
	return cmd
}

func (t *options) run(ctx context.Context, c *cli.Connection, name string) error {
	facts, err := t.gather(ctx, c, name, strings.TrimPrefix(t.pod, "pod/"))
	if err != nil {
		return err
	}
	for _, warning := range facts.Warnings {
		fmt.Fprintln(t.ErrOut, "Warning:", warning)
	}
	refused := refuse(facts)
	if t.dryRun {
		if err := t.plan(ctx, c, facts); err != nil {
			return err
		}
		return refused
	}
	if refused != nil {
		return refused
	}
	calls, err := client.NewWithWatch(c.REST, client.Options{Scheme: cli.Scheme})
	if err != nil {
		return fmt.Errorf("make a client of the cluster: %w", err)
	}
	f := &follower{
		options: t, Connection: c, facts: facts,
		requester: &requester.Requester{Name: v1alpha1.HookTestRequester, Client: calls, Clock: t.Clock},
	}
	return f.begin(ctx)
}
