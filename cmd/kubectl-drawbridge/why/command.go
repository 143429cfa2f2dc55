// Package why is the command that explains why a pod is not evicted: its interceptors,
// its budgets, what has happened, how an eviction call would be answered, and what to
// do. The files gather*.go read the facts; everything else is pure.
package why

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// NewCommand returns the command why.
func NewCommand(o *cli.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why POD",
		Short: "Explain why one pod is not evicted",
		Long: `Show which interceptors a pod has and why, which budgets select it and whether
they would allow its eviction now, what has happened so far, how an eviction call
would be answered (by a dry run), and what to do.

Nothing is changed. What you may not read is left out, and named.`,
		Example: `  kubectl drawbridge why db-0 -n shop
  kubectl drawbridge why db-0 -n shop -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.CompletePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Connect()
			if err != nil {
				return err
			}
			return run(cmd.Context(), o, c, strings.TrimPrefix(args[0], "pod/"))
		},
	}
	o.AddOutput(cmd, cli.FormatWide, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

func run(ctx context.Context, o *cli.Options, c *cli.Connection, pod string) error {
	facts, err := Gather(ctx, o, c, pod)
	if err != nil {
		return err
	}
	told := Tell(*facts)
	switch o.Output {
	case cli.FormatJSON, cli.FormatYAML:
		return o.PrintValue(told)
	case cli.FormatName:
		fmt.Fprintf(o.Out, "pod/%s\n", told.Pod)
		if told.Request != "" {
			fmt.Fprintf(o.Out, "evictionrequest.drawbridge.dev/%s\n", told.Request)
		}
		return nil
	default:
		return Print(o.Out, told, facts.Now, o.Output == cli.FormatWide)
	}
}
