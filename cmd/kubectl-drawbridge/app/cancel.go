package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/drain"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
)

func newCancel(o commands) *cobra.Command {
	whole := false
	cmd := &cobra.Command{
		Use:   "cancel (NODE | POD)",
		Short: "Cancel the drain of a node, or the eviction of a pod",
		Long: `Of a node: stop the maintenances that drain it. Their requests that are not finished are
withdrawn, and interceptors undo what they can. The node stays cordoned; see uncordon.

Of a pod: withdraw all requests for its eviction, of Drawbridge's API and of Kubernetes'
own (lifecycle.k8s.io). A drain that is still running requests it again. You need the
permission to delete the pod.

A plain name is looked up among the nodes first, then among the pods of the namespace.
Use node/NAME or pod/NAME to be explicit.`,
		Example: `  kubectl drawbridge cancel node-1
  kubectl drawbridge cancel pod/db-0 -n shop`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if strings.HasPrefix(prefix, "pod/") {
				return o.CompletePod(cmd, args, prefix)
			}
			return o.CompleteNodes(1)(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Connect()
			if err != nil {
				return err
			}
			defer func() { o.PrintWarnings(c) }()
			return cli.OnLatest(func() error { return o.cancel(cmd.Context(), c, args[0], whole) })
		},
	}
	cmd.Flags().BoolVar(&whole, "whole", false, "also stop maintenances that drain other nodes")
	o.AddOutput(cmd, cli.FormatName)
	return cmd
}

func (o commands) cancel(ctx context.Context, c *cli.Connection, what string, whole bool) error {
	if name, ok := strings.CutPrefix(what, "pod/"); ok {
		return o.cancelPod(ctx, c, name)
	}
	name, certain := strings.CutPrefix(what, "node/")
	node := &corev1.Node{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case err == nil:
		return o.cancelNode(ctx, c, node, whole)
	case certain && apierrors.IsNotFound(err):
		return fmt.Errorf("there is no node %q: kubectl get nodes lists them", name)
	case certain || !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return fmt.Errorf("get node %s: %w", name, err)
	}
	if err := o.cancelPod(ctx, c, name); !errors.Is(err, errNoPod) {
		return err
	}
	return fmt.Errorf("there is neither a node %q nor a pod of that name in namespace %q", name, c.Namespace)
}

var errNoPod = errors.New("there is no such pod")

// withdrawable returns what asks for the eviction of a pod, if that can be canceled.
func (o commands) withdrawable(ctx context.Context, c *cli.Connection, name string) (wishes, error) {
	w := wishes{pod: &corev1.Pod{}}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, w.pod); {
	case apierrors.IsNotFound(err):
		return w, fmt.Errorf("pod %q in namespace %q: %w", name, c.Namespace, errNoPod)
	case err != nil:
		return w, fmt.Errorf("get pod %s: %w", name, err)
	}
	er := &v1alpha1.EvictionRequest{}
	err := c.Get(ctx, v1alpha1.RequestKey(w.pod), er)
	if client.IgnoreNotFound(err) != nil {
		return w, fmt.Errorf("get the request for pod %s: %w", name, err)
	}
	found := err == nil
	if by := v1alpha1.Forbidding(er); by != "" && !v1alpha1.IsFinished(er) {
		return w, fmt.Errorf("too late: interceptor %s is past the point of no return with pod %s, so its eviction continues to the end even without a requester", by, name)
	}
	if w.native, err = o.nativeWishes(ctx, c, w.pod); err != nil {
		return w, err
	}
	state := requester.Observe(er).State
	switch over := state == v1alpha1.StateEvicted || state == v1alpha1.StateCanceled; {
	case found && !over && len(er.Spec.Requesters) > 0:
		w.request = er
	case len(w.native) > 0:
	case !found:
		return w, fmt.Errorf("nobody has requested the eviction of pod %s", name)
	default:
		return w, fmt.Errorf("there is nothing to cancel: the eviction of pod %s is %s already", name, strings.ToLower(string(state)))
	}
	return w, nil
}

func (o commands) cancelPod(ctx context.Context, c *cli.Connection, name string) error {
	w, err := o.withdrawable(ctx, c, name)
	if err != nil {
		return err
	}
	if err := w.withdraw(ctx, c); err != nil {
		return err
	}
	if o.Output == cli.FormatName {
		return w.print(o)
	}
	switch state, forbidden, err := o.settled(ctx, c, w); {
	case err != nil:
		return err
	case state == v1alpha1.StateEvicted:
		return fmt.Errorf("too late: pod %s was evicted before the cancellation was seen", name)
	case state == v1alpha1.StateCanceled:
		fmt.Fprintf(o.Out, "the eviction of pod %s is canceled\n", name)
	case forbidden != "":
		return fmt.Errorf("too late: interceptor %s has passed the point of no return with pod %s in the meantime, so its eviction continues to the end", forbidden, name)
	default:
		fmt.Fprintf(o.Out, "the request for pod %s is withdrawn\n", name)
		fmt.Fprintf(o.ErrOut, "Nobody has confirmed that within %s, so interceptors may still be working: %s\n", cli.ConfirmPatience, o.Installed(ctx, c).NobodyWorks(o.System))
	}
	if w.request == nil {
		return nil
	}
	for _, r := range w.request.Spec.Requesters {
		switch maintenance, ok := strings.CutSuffix(r.Name, "."+v1alpha1.MaintenanceRequesterSuffix); {
		case ok:
			fmt.Fprintf(o.ErrOut, "NodeMaintenance %s is still draining, and will request it again: kubectl drawbridge cancel node/%s\n", maintenance, w.request.Status.NodeName)
		case r.LeaseName != "":
			fmt.Fprintf(o.ErrOut, "%s is draining the node, and requests it again until the drain ends: stop the drain, or kubectl drawbridge uncordon %s\n", r.Name, w.request.Status.NodeName)
		}
	}
	return nil
}

// settled waits briefly until what was withdrawn has its outcome, and returns its state, or who has
// forbidden to cancel it.
func (o commands) settled(ctx context.Context, c *cli.Connection, w wishes) (state v1alpha1.RequestState, forbidden string, _ error) {
	err := o.HoldsWithin(ctx, cli.ConfirmPatience, func() (bool, error) {
		state = v1alpha1.StateCanceled // As if it were gone, and its outcome with it.
		if w.request != nil {
			now := &v1alpha1.EvictionRequest{}
			switch err := c.Get(ctx, client.ObjectKeyFromObject(w.request), now); {
			case apierrors.IsNotFound(err), err == nil && now.UID != w.request.UID:
			case err != nil:
				return false, fmt.Errorf("get the request for pod %s: %w", w.pod.Name, err)
			default:
				state, forbidden = requester.Observe(now).State, v1alpha1.Forbidding(now)
			}
		}
		if state == v1alpha1.StateCanceled && len(w.native) > 0 {
			var err error
			if state, err = nativeOutcome(ctx, c, w.pod); err != nil {
				return false, err
			}
		}
		return state == v1alpha1.StateEvicted || state == v1alpha1.StateCanceled || forbidden != "", nil
	})
	return state, forbidden, err
}

// stoppable returns the maintenances that drain a node, all of which may be stopped for it.
func stoppable(ctx context.Context, c *cli.Connection, node *corev1.Node, whole bool) ([]v1alpha1.NodeMaintenance, error) {
	var maintenances v1alpha1.NodeMaintenanceList
	if err := c.List(ctx, &maintenances); err != nil {
		return nil, fmt.Errorf("list nodemaintenances: %w", err)
	}
	draining := slices.DeleteFunc(covering(node, maintenances.Items), func(m v1alpha1.NodeMaintenance) bool { return !m.Spec.Drain || m.DeletionTimestamp != nil })
	if len(draining) == 0 {
		return nil, fmt.Errorf("no maintenance drains node %s; if another tool drains it, stop that, or withdraw its requests with kubectl drawbridge uncordon %s", node.Name, node.Name)
	}
	for i := range draining {
		if !whole && !onlyNode(&draining[i], node.Name) {
			return nil, fmt.Errorf("nodemaintenance %s drains other nodes, too: stop it for all of them with --whole, or take this one out with kubectl drawbridge uncordon %s", draining[i].Name, node.Name)
		}
	}
	return draining, nil
}

func (o commands) cancelNode(ctx context.Context, c *cli.Connection, node *corev1.Node, whole bool) error {
	draining, err := stoppable(ctx, c, node, whole)
	if err != nil {
		return err
	}
	for i := range draining {
		if err := drain.Stop(ctx, c, draining[i].Name); err != nil {
			return err
		}
		if o.Output == cli.FormatName {
			if err := o.PrintObject(&draining[i]); err != nil {
				return err
			}
			continue
		}
		heard, err := o.heard(ctx, c, draining[i].Name)
		if err != nil {
			return err
		}
		if heard {
			fmt.Fprintf(o.Out, "nodemaintenance.drawbridge.dev/%s stopped; node %s stays cordoned: kubectl drawbridge uncordon %s\n", draining[i].Name, node.Name, node.Name)
			continue
		}
		fmt.Fprintf(o.Out, "nodemaintenance.drawbridge.dev/%s told to stop\n", draining[i].Name)
		fmt.Fprintf(o.ErrOut, "The manager has not responded within %s, so nothing is withdrawn yet: %s\n", cli.ConfirmPatience, o.Installed(ctx, c).NobodyWorks(o.System))
	}
	return nil
}

// heard waits briefly until a manager has observed the latest spec of a maintenance.
func (o commands) heard(ctx context.Context, c *cli.Connection, name string) (bool, error) {
	heard := false
	err := o.HoldsWithin(ctx, cli.ConfirmPatience, func() (bool, error) {
		m := &v1alpha1.NodeMaintenance{}
		switch err := c.Get(ctx, client.ObjectKey{Name: name}, m); {
		case apierrors.IsNotFound(err):
			heard = true
		case err != nil:
			return false, fmt.Errorf("get nodemaintenance %s: %w", name, err)
		default:
			heard = m.Status.ObservedGeneration >= m.Generation
		}
		return heard, nil
	})
	return heard, err
}
