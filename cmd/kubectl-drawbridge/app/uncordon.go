package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

const (
	// releasePatience is how long to wait for Drawbridge to give a node back.
	releasePatience = 30 * time.Second
	releaseInterval = 250 * time.Millisecond
)

func newUncordon(o commands) *cobra.Command {
	whole := false
	cmd := &cobra.Command{
		Use:   "uncordon NODE...",
		Short: "End the maintenance of nodes, and make them schedulable",
		Long: `For each node: delete the maintenances of the node, or take the node out of those that name others,
too; wait until it is released, and make it schedulable. Their requests are withdrawn,
and so are those of callers of pods/eviction on this node.`,
		Example:           `  kubectl drawbridge uncordon node-1 node-2`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: o.CompleteNodes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := cli.NodeArguments(args)
			if err != nil {
				return err
			}
			c, err := o.Connect()
			if err != nil {
				return err
			}
			defer func() { o.PrintWarnings(c) }()
			// Continue with the other nodes if one fails.
			var failed []error
			for _, node := range nodes {
				if err := cli.OnLatest(func() error { return o.uncordon(cmd.Context(), c, node, whole) }); err != nil {
					failed = append(failed, err)
				}
			}
			return errors.Join(failed...)
		},
	}
	cmd.Flags().BoolVar(&whole, "whole", false, "also delete maintenances that select other nodes")
	o.AddOutput(cmd, cli.FormatName)
	return cmd
}

// release is how a node leaves a maintenance.
type release struct {
	maintenance *v1alpha1.NodeMaintenance
	// selector is what is left of its selector; nil if it is deleted.
	selector *v1alpha1.NodeSelector
}

// releases are how a node leaves all its maintenances, or why it cannot.
func releases(node *corev1.Node, maintenances []v1alpha1.NodeMaintenance, whole bool) ([]release, error) {
	var all []release
	for _, m := range covering(node, maintenances) {
		rest, divisible := withoutNode(&m, node.Name)
		switch {
		case whole || onlyNode(&m, node.Name):
			all = append(all, release{maintenance: &m})
		case divisible:
			all = append(all, release{maintenance: &m, selector: &rest})
		default:
			return nil, fmt.Errorf("nodemaintenance %s selects node %s by labels, with others: end it for all of them with --whole, or change the node's labels", m.Name, node.Name)
		}
	}
	return all, nil
}

// releasesOf reads a node and how it leaves its maintenances.
func releasesOf(ctx context.Context, c *cli.Connection, name string, whole bool) (*corev1.Node, []release, error) {
	node, err := c.Node(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	var maintenances v1alpha1.NodeMaintenanceList
	if err := c.List(ctx, &maintenances); err != nil {
		return nil, nil, fmt.Errorf("list nodemaintenances: %w", err)
	}
	all, err := releases(node, maintenances.Items, whole)
	return node, all, err
}

func (o commands) uncordon(ctx context.Context, c *cli.Connection, name string, whole bool) error {
	_, all, err := releasesOf(ctx, c, name, whole)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := o.leave(ctx, c, r, name); err != nil {
			return err
		}
	}
	node, err := o.givenBack(ctx, c, name)
	if err != nil {
		return err
	}
	if node.Spec.Unschedulable {
		before := node.DeepCopy()
		node.Spec.Unschedulable = false
		// The lock also makes sure that it is the same node.
		if err := c.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(cli.FieldOwner)); err != nil {
			return fmt.Errorf("uncordon node %s: %w", name, err)
		}
	}
	if o.Output == cli.FormatName {
		return o.PrintObject(node)
	}
	fmt.Fprintf(o.Out, "node/%s uncordoned\n", name)
	return o.tellForbidden(ctx, c, name)
}

// tellForbidden says which evictions on a node go on, because an interceptor is past the point
// of no return.
func (o commands) tellForbidden(ctx context.Context, c *cli.Connection, node string) error {
	var requests v1alpha1.EvictionRequestList
	switch err := c.List(ctx, &requests); {
	case apierrors.IsForbidden(err):
		return nil // The node is uncordoned; who may not look is told no less than before.
	case err != nil:
		return fmt.Errorf("node %s is uncordoned, but which evictions continue is not known: list evictionrequests: %w", node, err)
	}
	for i := range requests.Items {
		er := &requests.Items[i]
		if by := v1alpha1.Forbidding(er); by != "" && er.Status.NodeName == node && er.Spec.Target.Pod != nil && !v1alpha1.IsFinished(er) {
			fmt.Fprintf(o.ErrOut, "The eviction of pod %s/%s continues nevertheless: interceptor %s is past the point of no return.\n", er.Namespace, er.Spec.Target.Pod.Name, by)
		}
	}
	return nil
}

// leave removes the node from a maintenance.
func (o commands) leave(ctx context.Context, c *cli.Connection, r release, node string) error {
	if r.selector == nil {
		err := c.Delete(ctx, r.maintenance, client.Preconditions{UID: &r.maintenance.UID, ResourceVersion: &r.maintenance.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete nodemaintenance %s: %w", r.maintenance.Name, err)
		}
		o.sayf("nodemaintenance.drawbridge.dev/%s deleted\n", r.maintenance.Name)
		return nil
	}
	before := r.maintenance.DeepCopy()
	r.maintenance.Spec.NodeSelector = *r.selector
	if err := c.Patch(ctx, r.maintenance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(cli.FieldOwner)); err != nil {
		return fmt.Errorf("take node %s out of nodemaintenance %s: %w", node, r.maintenance.Name, err)
	}
	o.sayf("nodemaintenance.drawbridge.dev/%s continues without node %s\n", r.maintenance.Name, node)
	return nil
}

// sayf prints for people, not for programs.
func (o commands) sayf(format string, args ...any) {
	if o.Output == "" {
		fmt.Fprintf(o.Out, format, args...)
	}
}

// givenBack waits until no maintenance holds the node.
func (o commands) givenBack(ctx context.Context, c *cli.Connection, name string) (*corev1.Node, error) {
	deadline := o.Clock.Now().Add(releasePatience)
	tick := o.Clock.NewTicker(releaseInterval)
	defer tick.Stop()
	for {
		node := &corev1.Node{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return nil, fmt.Errorf("get node %s: %w", name, err)
		}
		held := node.Annotations[v1alpha1.MaintenancesAnnotation]
		if held == "" {
			return node, nil
		}
		if o.Clock.Now().After(deadline) {
			return nil, fmt.Errorf("node %s is still held by nodemaintenance %s after %s: see whether Drawbridge runs (kubectl -n %s get pods)", name, held, releasePatience, o.System)
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return nil, cli.ErrInterrupted
		}
	}
}
