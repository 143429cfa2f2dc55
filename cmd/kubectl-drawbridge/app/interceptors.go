package app

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
)

func newInterceptors(o commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "interceptors",
		Short: "List the registered interceptors, with how many pods they have",
		Long: `List the EvictionInterceptors, the EvacuationHooks and the interceptor of all
EvictionBudgets: how many pods each intercepts, for how many it is active, and for how
many it waits for its turn. Interceptors that only pods name come last.`,
		Example:           `  kubectl drawbridge interceptors -o wide`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Connect()
			if err != nil {
				return err
			}
			return o.interceptors(cmd.Context(), c)
		},
	}
	o.AddOutput(cmd, cli.FormatWide, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

func (o commands) interceptors(ctx context.Context, c *cli.Connection) error {
	var registrations v1alpha1.EvictionInterceptorList
	if err := c.List(ctx, &registrations); err != nil {
		return fmt.Errorf("list evictioninterceptors: %w", err)
	}
	var requests v1alpha1.EvictionRequestList
	if err := c.List(ctx, &requests); err != nil {
		return fmt.Errorf("list evictionrequests: %w", err)
	}
	hooks, err := o.HooksIfAllowed(ctx, c)
	if err != nil {
		return err
	}
	budgets, err := o.EvictionBudgetsIfAllowed(ctx, c)
	if err != nil {
		return err
	}
	all := listing.Interceptors(registrations.Items, hooks, budgets, requests.Items)
	switch o.Output {
	case cli.FormatJSON, cli.FormatYAML:
		return o.PrintValue(all)
	case cli.FormatName:
		for _, r := range all {
			switch {
			case r.Hook != "":
				_, name, _ := strings.Cut(r.Hook, "/")
				fmt.Fprintf(o.Out, "evacuationhook.drawbridge.dev/%s\n", name)
			case r.Registered && r.Budgets == 0 && !r.Native && !r.Order:
				fmt.Fprintf(o.Out, "evictioninterceptor.drawbridge.dev/%s\n", r.Name)
			}
		}
		return nil
	default:
		return o.printInterceptors(all)
	}
}

func (o commands) printInterceptors(all []listing.Interceptor) error {
	if len(all) == 0 {
		fmt.Fprintln(o.Out, "No interceptor is registered, and none has a turn.")
		return nil
	}
	wide := o.Output == cli.FormatWide
	t := cli.NewTable(o.Out)
	heading := []string{"NAME", "PRIORITY", "GUARD", "ACCEPTED", "PODS", "ACTIVE", "WAITING"}
	if wide {
		heading = append(heading, "ACCOUNTS")
	}
	t.Row(heading...)
	for _, r := range all {
		priority, accepted, pods := "", "not registered", ""
		if r.Registered {
			priority, accepted = number(r.Priority), cmp.Or(r.Accepted, "Unknown")
		}
		if r.Native || r.Order {
			priority = "" // It has none: its place depends on the others of the pod.
		}
		if r.Pods != nil {
			pods = number(*r.Pods)
		}
		row := []string{r.Name, priority, r.Guard, accepted, pods, strconv.Itoa(r.Active), strconv.Itoa(r.Waiting)}
		if wide {
			row = append(row, strings.Join(r.Accounts, ","))
		}
		t.Row(row...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		if r.Trouble != "" {
			fmt.Fprintf(o.Out, "\n%s: %s\n", r.Name, r.Trouble)
		}
	}
	return nil
}
