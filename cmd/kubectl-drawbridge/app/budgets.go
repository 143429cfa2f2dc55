package app

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

func newBudgets(o commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "budgets [NAME]",
		Aliases: []string{"budget"},
		Short:   "List the EvictionBudgets, or the groups of one",
		Long: `List the EvictionBudgets of a namespace: how many evictions each would grant now, how many
wait for it and why, and when its next window opens.

With a name: the groups of this budget, and the pods whose eviction it has granted and that
have no successor yet.`,
		Example: `  kubectl drawbridge budgets -A
  kubectl drawbridge budgets ingester -n mimir`,
		ValidArgsFunction: o.CompleteFirst(cli.BudgetResource),
	}
	o.ofNamespace(cmd, "budget", o.budget, o.budgets)
	o.AddOutput(cmd, cli.FormatWide, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

func (o commands) budgets(ctx context.Context, c *cli.Connection, namespace string) error {
	found, err := c.EvictionBudgets(ctx, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	all := listing.Budgets(found)
	if o.Output == cli.FormatJSON || o.Output == cli.FormatYAML {
		return o.PrintValue(all)
	}
	return o.printBudgets(all, namespace)
}

func (o commands) printBudgets(all []listing.Budget, namespace string) error {
	if len(all) == 0 {
		return o.none("EvictionBudget", namespace)
	}
	wide := o.Output == cli.FormatWide
	t := cli.NewTable(o.Out)
	heading := []string{"NAMESPACE", "NAME", "PODS", "GROUPS", "DISRUPTED", "ALLOWED", "WAITING", "GRANTING", "WINDOW"}
	if wide {
		heading = append(heading, "GROUP-BY", "MAX-GROUPS", "MAX-UNAVAILABLE", "GUARD", "ACCEPTED")
	}
	t.Row(heading...)
	for _, b := range all {
		groups, disrupted, maxGroups := "", "", ""
		if b.GroupBy != "" {
			groups, disrupted, maxGroups = strconv.Itoa(b.Groups), strconv.Itoa(b.Disrupted), number(b.MaxGroups)
		}
		row := []string{
			b.Namespace, b.Name, numberIfKnown(b.Pods), groups, disrupted, numberIfKnown(b.Allowed), numberIfKnown(b.Waiting),
			cmp.Or(b.Granting, "Unknown"), o.opening(b.Window),
		}
		if wide {
			row = append(row, b.GroupBy, maxGroups, b.MaxUnavailable, b.Guard, cmp.Or(b.Accepted, "Unknown"))
		}
		t.Row(row...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, b := range all {
		if b.Trouble != "" {
			fmt.Fprintf(o.Out, "\n%s/%s: %s\n", b.Namespace, b.Name, text.Clean(b.Trouble))
		}
	}
	return nil
}

// opening says when a window closes or opens; empty without one.
func (o commands) opening(w *v1alpha1.BudgetOpening) string {
	now := o.Clock.Now()
	switch {
	case w == nil:
		return ""
	case now.Before(w.Start.Time):
		return "from " + w.Start.In(now.Location()).Format(time.RFC3339)
	default:
		return "until " + w.End.In(now.Location()).Format(time.RFC3339)
	}
}

func (o commands) budget(ctx context.Context, c *cli.Connection, name string) error {
	b := &v1alpha1.EvictionBudget{}
	if err := get(ctx, c, b, "EvictionBudget", name); err != nil {
		return err
	}
	if o.Output == cli.FormatJSON || o.Output == cli.FormatYAML {
		return o.PrintValue(b.Status)
	}
	return o.printBudget(b)
}

// printBudget prints the groups of a budget, and what it has granted.
func (o commands) printBudget(b *v1alpha1.EvictionBudget) error {
	switch {
	case b.Status.MatchingPods == nil:
		fmt.Fprintf(o.Out, "The manager has not observed EvictionBudget %s in namespace %s yet.\n", b.Name, b.Namespace)
	case len(b.Status.Groups) == 0:
		fmt.Fprintf(o.Out, "EvictionBudget %s covers no pod in namespace %s now.\n", b.Name, b.Namespace)
	default:
		t := cli.NewTable(o.Out)
		t.Row("GROUP", "EXPECTED", "AVAILABLE", "DISRUPTED", "MAX-UNAVAILABLE", "WAITING")
		for _, g := range b.Status.Groups {
			t.Row(groupName(b, g.Name), number(g.Expected), number(g.Available), number(g.Disrupted), number(budgetstatus.MaxUnavailable(b, g.Expected)), number(g.Waiting))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(b.Status.Grants) > 0 {
		fmt.Fprintln(o.Out)
		t := cli.NewTable(o.Out)
		t.Row("GRANTED", "GROUP", "AGO")
		for _, g := range b.Status.Grants {
			t.Row(g.Pod, groupName(b, g.Group), cli.Age(o.Clock.Now(), g.Time.Time))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	state := listing.BudgetOf(b)
	if opening := o.opening(state.Window); opening != "" {
		fmt.Fprintf(o.Out, "\nWindow: %s\n", opening)
	}
	if state.Trouble != "" {
		fmt.Fprintf(o.Out, "\n%s\n", text.Clean(state.Trouble))
	}
	return nil
}

// groupName is quoted, since the group of pods without the label has none.
func groupName(b *v1alpha1.EvictionBudget, name string) string {
	if b.Spec.GroupBy == nil {
		return ""
	}
	return strconv.Quote(name)
}
