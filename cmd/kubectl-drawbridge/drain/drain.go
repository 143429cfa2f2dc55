// Package drain is the command that drains nodes and shows the progress. The output is a
// pure function of a snapshot (view.go, teller.go), and the prediction for a pod in a dry
// run is one of a fateInput (fate.go).
package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// NewCommand returns the command drain.
func NewCommand(o *cli.Options) *cobra.Command {
	d := &options{Options: o, wait: true}
	cmd := &cobra.Command{
		Use:   "drain (NODE... | -l SELECTOR)",
		Short: "Drain nodes, and follow it",
		Long: `Cordon nodes and have their pods evacuated, by a NodeMaintenance, and follow it
until all pods that must leave have left. Pods of DaemonSets, static pods and pods
that have ended stay.

What kubectl drain refuses is refused here, too, before anything is changed: pods that
no controller would recreate (without --force), pods with emptyDir volumes (without
--delete-emptydir-data), and pods of DaemonSets (without --ignore-daemonsets). Such
pods that come to the nodes later are kept, and the drain says so and waits.

The name of the NodeMaintenance follows from the nodes, so the same command again
follows the same drain. ^C leaves it running; it continues without this command. The
nodes stay cordoned at the end: see kubectl drawbridge uncordon.`,
		Example: `  kubectl drawbridge drain node-1 node-2 --ignore-daemonsets --reason="kernel update"
  kubectl drawbridge drain -l pool=blue --ignore-daemonsets --delete-emptydir-data --max-parallel=1
  kubectl drawbridge drain node-1 --ignore-daemonsets --dry-run=server`,
		ValidArgsFunction: o.CompleteNodes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(cmd); err != nil {
				return err
			}
			args, err := cli.NodeArguments(args)
			if err != nil {
				return err
			}
			c, err := o.Connect()
			if err != nil {
				return err
			}
			return d.run(cmd.Context(), c, args)
		},
	}
	d.addFlags(cmd)
	o.AddOutput(cmd, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

func (d *options) run(ctx context.Context, c *cli.Connection, args []string) error {
	wanted, err := d.maintenance(args)
	if err != nil {
		return err
	}
	nodes, err := d.nodes(ctx, c, args)
	if err != nil {
		return err
	}
	refused := d.refusal(ctx, c, nodes)
	if _, ok := errors.AsType[*refusedError](refused); refused != nil && (!ok || d.dryRun == cmdutil.DryRunNone) {
		return refused
	}
	if d.dryRun != cmdutil.DryRunNone {
		return errors.Join(d.plan(ctx, c, wanted, nodes), refused)
	}
	installed := d.Installed(ctx, c)
	if installed.MaintenanceOff {
		return errors.New("nobody would drain: " + installed.NobodyWorks(d.System))
	}
	current, err := d.begin(ctx, c, wanted)
	if err != nil {
		return err
	}
	if d.wait {
		f := &follower{Options: d.Options, Connection: c, name: current.Name, again: d.command(args), stop: stopCommand(nodes)}
		if d.cancelOnInterrupt {
			f.onInterrupt = func(ctx context.Context) error { return Stop(ctx, c, current.Name) }
		}
		f.timeout, f.native = d.timeout, installed.Native
		if installed.Wait != nil {
			f.wait = installed.Wait.String()
		}
		if err := f.follow(ctx, current); err != nil {
			return err
		}
		if d.Output != "" {
			if err := c.Get(ctx, client.ObjectKeyFromObject(current), current); err != nil {
				return fmt.Errorf("get nodemaintenance %s: %w", current.Name, err)
			}
		}
	}
	if d.Output != "" {
		return d.PrintObject(current)
	}
	if !d.wait {
		fmt.Fprintf(d.Out, "nodemaintenance.drawbridge.dev/%s drains %s\n", current.Name, text.Counted(len(nodes), "node"))
	}
	return nil
}

// stopCommand is the command line that stops the drain.
func stopCommand(nodes []string) string {
	if len(nodes) == 1 {
		return "kubectl drawbridge cancel " + nodes[0]
	}
	return fmt.Sprintf("kubectl drawbridge cancel %s --whole", nodes[0])
}

// maintenance returns the object that the flags describe.
func (d *options) maintenance(args []string) (*v1alpha1.NodeMaintenance, error) {
	switch {
	case len(args) == 0 && d.selector == "":
		return nil, fmt.Errorf("name the nodes to drain, or select them with -l")
	case len(args) > 0 && d.selector != "":
		return nil, fmt.Errorf("either name the nodes to drain or select them with -l, not both")
	case d.timeout < 0:
		return nil, fmt.Errorf("--timeout must not be negative, but is %s", d.timeout)
	case d.parallel < 0:
		return nil, fmt.Errorf("--max-parallel must not be negative, but is %d", d.parallel)
	}
	selector, err := nodeSelector(args, d.selector)
	if err != nil {
		return nil, err
	}
	m := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: maintenanceName(args, d.selector)},
		Spec: v1alpha1.NodeMaintenanceSpec{
			NodeSelector: *selector, Cordon: true, Drain: true, Reason: d.reason,
			UnmanagedPods: treatment(d.force), EmptyDirPods: treatment(d.deleteEmptyDirData),
		},
	}
	if d.parallel > 0 {
		m.Spec.MaxParallelNodes = &d.parallel
	}
	return m, nil
}

// treatment of pods that kubectl drain evicts only when told to.
func treatment(evict bool) v1alpha1.PodTreatment {
	if evict {
		return v1alpha1.PodsEvict
	}
	return v1alpha1.PodsKeep
}

// nodes returns the names of the selected nodes, all of which exist.
func (d *options) nodes(ctx context.Context, c *cli.Connection, args []string) ([]string, error) {
	if d.selector == "" {
		for _, name := range args {
			if _, err := c.Node(ctx, name); err != nil {
				return nil, err
			}
		}
		return args, nil
	}
	selector, err := labels.Parse(d.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	var list corev1.NodeList
	if err := c.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no node has labels that match %q", d.selector)
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	return names, nil
}

// begin creates the maintenance, or joins the existing one of that name, which is for the
// same nodes.
func (d *options) begin(ctx context.Context, c *cli.Connection, wanted *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, error) {
	err := c.Create(ctx, wanted, client.FieldOwner(cli.FieldOwner))
	d.PrintWarnings(c)
	if err == nil {
		return wanted, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create nodemaintenance %s: %w", wanted.Name, err)
	}
	var joined *v1alpha1.NodeMaintenance
	err = cli.OnLatest(func() error {
		joined, err = d.joinRunning(ctx, c, wanted)
		return err
	})
	return joined, err
}

// joinRunning adds the wanted spec to the maintenance of that name.
func (d *options) joinRunning(ctx context.Context, c *cli.Connection, wanted *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, error) {
	current := &v1alpha1.NodeMaintenance{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(wanted), current); err != nil {
		return nil, fmt.Errorf("get nodemaintenance %s: %w", wanted.Name, err)
	}
	if current.DeletionTimestamp != nil {
		return nil, fmt.Errorf("an earlier drain of the same nodes (nodemaintenance %s) is being undone: try again in a moment", current.Name)
	}
	joined := join(current.Spec, wanted.Spec)
	if equality.Semantic.DeepEqual(joined, current.Spec) {
		fmt.Fprintf(d.ErrOut, "These nodes are being drained already, since %s ago: following nodemaintenance %s.\n", cli.Age(d.Clock.Now(), current.CreationTimestamp.Time), current.Name)
		return current, nil
	}
	current.Spec = joined
	// With the resourceVersion that was read, so no other change gets lost.
	if err := c.Update(ctx, current, client.FieldOwner(cli.FieldOwner)); err != nil {
		return nil, fmt.Errorf("update nodemaintenance %s: %w", current.Name, err)
	}
	return current, nil
}

// join returns the spec after a repeated drain: fields that are not given stay.
func join(current, wanted v1alpha1.NodeMaintenanceSpec) v1alpha1.NodeMaintenanceSpec {
	joined := *current.DeepCopy()
	joined.NodeSelector, joined.Cordon, joined.Drain = wanted.NodeSelector, true, true
	if wanted.Reason != "" {
		joined.Reason = wanted.Reason
	}
	if wanted.MaxParallelNodes != nil {
		joined.MaxParallelNodes = wanted.MaxParallelNodes
	}
	if wanted.UnmanagedPods == v1alpha1.PodsEvict {
		joined.UnmanagedPods = v1alpha1.PodsEvict
	}
	if wanted.EmptyDirPods == v1alpha1.PodsEvict {
		joined.EmptyDirPods = v1alpha1.PodsEvict
	}
	return joined
}

// Stop sets drain to false: the remaining requests are withdrawn, and the nodes stay
// cordoned.
func Stop(ctx context.Context, c *cli.Connection, name string) error {
	err := cli.OnLatest(func() error {
		m := &v1alpha1.NodeMaintenance{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, m); err != nil {
			return err //nolint:wrapcheck // It is wrapped below.
		}
		before := m.DeepCopy()
		m.Spec.Drain = false
		return c.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(cli.FieldOwner))
	})
	if err != nil {
		return fmt.Errorf("stop nodemaintenance %s: %w", name, err)
	}
	return nil
}

// sorted returns a sorted copy without duplicates.
func sorted(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
