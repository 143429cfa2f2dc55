package forecast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// maxPrinted is how many pods are printed without -o wide.
const maxPrinted = 30

// podColumns say which pod a row is about.
const podColumns = 3

type options struct {
	*cli.Options
	force, deleteEmptyDir bool
	parallel              int
	seed                  uint64
	// maintenance is the name of a NodeMaintenance, instead of nodes.
	maintenance string
}

// NewCommand returns the command forecast.
func NewCommand(o *cli.Options) *cobra.Command {
	f := &options{Options: o, seed: 1}
	cmd := &cobra.Command{
		Use:   "forecast [NODE...]",
		Short: "Forecast how a drain would go",
		Long: `Simulate the drain of nodes on a copy of what is known of the cluster: when it
would be done, in which order the pods would leave, what would block it forever, and
whether the pods fit on other nodes.

Durations come from the requests that this cluster still keeps. An interceptor without
history has an unknown duration. Nothing is changed.

With --maintenance, the forecast is that of a NodeMaintenance: of the nodes that it selects,
with its settings and its waves. To have one before the drain, create the NodeMaintenance
with drain: false.`,
		Example: `  kubectl drawbridge forecast node-1 node-2
  kubectl drawbridge forecast node-1 --max-parallel=1 -o json
  kubectl drawbridge forecast --maintenance kernel`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.maintenance == "":
				return cobra.MinimumNArgs(1)(cmd, args)
			case len(args) > 0:
				return errors.New("name nodes or --maintenance, not both")
			}
			return nil
		},
		ValidArgsFunction: o.CompleteNodes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := cli.NodeArguments(args)
			if err != nil {
				return err
			}
			if f.parallel < 0 {
				return fmt.Errorf("--max-parallel must not be negative, but is %d", f.parallel)
			}
			c, err := o.Connect()
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), c, nodes)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.force, "force", false, "also drain pods that no controller would recreate")
	flags.BoolVar(&f.deleteEmptyDir, "delete-emptydir-data", false, "also drain pods with emptyDir volumes")
	flags.IntVar(&f.parallel, "max-parallel", 0, "how many nodes to drain at the same time; 0 is all")
	flags.StringVar(&f.maintenance, "maintenance", "", "name of a NodeMaintenance, whose nodes are drained with its settings")
	flags.Uint64Var(&f.seed, "seed", f.seed, "seed of the simulation's random numbers")
	for _, other := range []string{"force", "delete-emptydir-data", "max-parallel"} {
		cmd.MarkFlagsMutuallyExclusive("maintenance", other)
	}
	o.AddOutput(cmd, cli.FormatWide, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

func (f *options) run(ctx context.Context, c *cli.Connection, nodes []string) error {
	in, err := gather(ctx, f.Options, c, nodes)
	if err != nil {
		return err
	}
	in.Seed = f.seed
	if f.maintenance == "" {
		in.Settings.KeepUnmanaged, in.Settings.KeepEmptyDir, in.Settings.MaxParallel = !f.force, !f.deleteEmptyDir, f.parallel
	} else if err := in.maintain(ctx, c, f.maintenance); err != nil {
		return err
	}
	told := Of(in)
	if f.Output == cli.FormatJSON || f.Output == cli.FormatYAML {
		return f.PrintValue(told)
	}
	return f.print(&told)
}

// print is for people: what matters first.
func (f *options) print(told *Forecast) error {
	fmt.Fprintln(f.Out, text.Clean(told.Headline))
	if len(told.Blockers) > 0 {
		fmt.Fprintln(f.Out, "\nBlocked until someone acts:")
		t := cli.NewTable(f.Out)
		t.Row("NAMESPACE", "POD", "BY", "BECAUSE", "DO")
		for _, b := range told.Blockers[:f.most(len(told.Blockers))] {
			t.Row(text.Clean(b.Namespace), text.Clean(b.Pod), text.Clean(b.Who), text.Clean(b.Why), text.Clean(b.Do))
		}
		if err := f.flush(t, len(told.Blockers)); err != nil {
			return err
		}
	}
	if len(told.Pods) > 0 {
		fmt.Fprintln(f.Out)
		t := cli.NewTable(f.Out)
		waves := slices.ContainsFunc(told.Pods, func(p Pod) bool { return p.Wave != "" })
		row := func(wave string, cells ...string) {
			if waves {
				cells = slices.Insert(cells, podColumns, wave)
			}
			t.Row(cells...)
		}
		row("WAVE", "NODE", "NAMESPACE", "POD", "START", "GONE", "P95", "AFTER")
		for _, p := range told.Pods[:f.most(len(told.Pods))] {
			start, gone, p95 := p.Times()
			row(p.Wave, text.Clean(p.Node), text.Clean(p.Namespace), text.Clean(p.Name), start, gone, p95, p.After())
		}
		if err := f.flush(t, len(told.Pods)); err != nil {
			return err
		}
	}
	if len(told.History) > 0 {
		fmt.Fprintln(f.Out, "\nMeasured on this cluster:")
		t := cli.NewTable(f.Out)
		t.Row("WHAT", "SAMPLES", "P50", "P95", "PODS")
		for _, h := range told.History {
			p50, p95 := h.Times()
			t.Row(h.Name, strconv.Itoa(h.Samples), p50, p95, strconv.Itoa(h.Pods))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if n := told.Fit.UnplacedPods; n > 0 {
		fmt.Fprintf(f.Out, "\n%s of %d fit on no other node:\n", text.Counted(n, "pod"), told.Fit.Asked)
		for _, u := range told.Fit.Unplaced[:f.most(len(told.Fit.Unplaced))] {
			fmt.Fprintf(f.Out, "  %s/%s: %s\n", text.Clean(u.Namespace), text.Clean(u.Pod), text.Clean(u.Why))
		}
	}
	fmt.Fprintf(f.Out, "\nLeft out (%s):\n", text.Counted(told.Runs, "run"))
	for _, what := range told.LeftOut {
		fmt.Fprintf(f.Out, "  %s\n", text.Clean(what))
	}
	return nil
}

// most is how many of n rows are printed.
func (f *options) most(n int) int {
	if f.Output == cli.FormatWide {
		return n
	}
	return min(n, maxPrinted)
}

func (f *options) flush(t cli.Table, n int) error {
	if err := t.Flush(); err != nil {
		return err
	}
	if more := n - f.most(n); more > 0 {
		fmt.Fprintf(f.Out, "and %d more: see -o wide\n", more)
	}
	return nil
}

// After are the turns before its eviction for people; behind that of native responders stands who
// they are, and behind that of the order whom it waits for.
func (p *Pod) After() string {
	all := slices.Clone(p.Turns)
	for i := range all {
		switch {
		case all[i] == v1alpha1.NativeInterceptor && len(p.Responders) > 0:
			all[i] += " (" + strings.Join(p.Responders, ", ") + ")"
		case all[i] == v1alpha1.OrderInterceptor:
			all[i] += p.waitsFor()
		}
	}
	return strings.Join(all, ", ")
}

// Times are the pod's for people: its start, its end and the p95 of that.
func (p *Pod) Times() (start, gone, p95 string) {
	cut := ""
	if p.CutOffAt != nil {
		cut = ", cut off at " + p.CutOffAt.Format("15:04:05")
	}
	switch {
	case p.Stays != "":
		return "", "stays: " + p.Stays, ""
	case p.Blocked:
		return Human(p.StartSeconds), "never", ""
	case p.AtLeast:
		return Human(p.StartSeconds), "at least " + Human(p.EndSeconds) + cut, ""
	default:
		return Human(p.StartSeconds), Human(p.EndSeconds) + cut, Human(p.EndP95Seconds)
	}
}

// Times are the history's for people.
func (h *History) Times() (p50, p95 string) {
	if h.Samples == 0 {
		return "unknown", "unknown"
	}
	return Human(h.P50Seconds), Human(h.P95Seconds)
}
