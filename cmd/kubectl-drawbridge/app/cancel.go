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
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

func newCancel(o *Options) *cobra.Command {
	whole := false
	cmd := &cobra.Command{
		Use:   "cancel (NODE | POD)",
		Short: "Call off the drain of a node, or the eviction of a pod",
		Long: `Of a node: stop the maintenances that drain it. What is not done is withdrawn, and
interceptors undo what they can. The node stays cordoned; see uncordon.

Of a pod: withdraw its request, whoever wants it. A drain that still runs asks for it
again. You need the permission to delete the pod.

A plain name is looked for among the nodes first, and then among the pods of the
namespace; node/NAME and pod/NAME say which is meant.`,
		Example: `  kubectl drawbridge cancel node-1
  kubectl drawbridge cancel pod/db-0 -n shop`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if strings.HasPrefix(prefix, "pod/") {
				pods, directive := o.completePod(cmd, args, prefix)
				for i := range pods {
					pods[i] = "pod/" + pods[i]
				}
				return pods, directive
			}
			return o.completeNodes(1)(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.connect()
			if err != nil {
				return err
			}
			defer func() { o.tell(c.warnings) }()
			return onLatest(func() error { return o.cancel(cmd.Context(), c, args[0], whole) })
		},
	}
	cmd.Flags().BoolVar(&whole, "whole", false, "also stop maintenances that drain other nodes, too")
	o.addOutput(cmd, formatName)
	return cmd
}

func (o *Options) cancel(ctx context.Context, c *connection, what string, whole bool) error {
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
	return fmt.Errorf("there is neither a node %q nor a pod of that name in namespace %q", name, c.namespace)
}

var errNoPod = errors.New("there is no such pod")

func (o *Options) cancelPod(ctx context.Context, c *connection, name string) error {
	pod := &corev1.Pod{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, pod); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("pod %q in namespace %q: %w", name, c.namespace, errNoPod)
	case err != nil:
		return fmt.Errorf("get pod %s: %w", name, err)
	}
	er := &v1alpha1.EvictionRequest{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: string(pod.UID)}, er); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("nobody has requested the eviction of pod %s", name)
	case err != nil:
		return fmt.Errorf("get the request for pod %s: %w", name, err)
	}
	if state := interceptor.Observe(er).State; len(er.Spec.Requesters) == 0 || state == v1alpha1.StateEvicted || state == v1alpha1.StateCanceled {
		return fmt.Errorf("there is nothing to call off: the eviction of pod %s is %s already", name, strings.ToLower(string(state)))
	}
	before := er.DeepCopy()
	er.Spec.Requesters = nil
	if err := c.Patch(ctx, er, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("withdraw the request for pod %s: %w", name, err)
	}
	if o.output == formatName {
		return o.printObject(er)
	}
	fmt.Fprintf(o.Out, "the eviction of pod %s is called off\n", name)
	for _, r := range before.Spec.Requesters {
		switch maintenance, ok := strings.CutSuffix(r.Name, "."+v1alpha1.MaintenanceRequesterSuffix); {
		case ok:
			fmt.Fprintf(o.ErrOut, "NodeMaintenance %s still wants it, and will ask again: kubectl drawbridge cancel node/%s\n", maintenance, before.Status.NodeName)
		case r.LeaseName != "":
			fmt.Fprintf(o.ErrOut, "%s drains the node, and asks again as long as that goes on: stop the drain, or kubectl drawbridge uncordon %s\n", r.Name, before.Status.NodeName)
		}
	}
	return nil
}

func (o *Options) cancelNode(ctx context.Context, c *connection, node *corev1.Node, whole bool) error {
	var maintenances v1alpha1.NodeMaintenanceList
	if err := c.List(ctx, &maintenances); err != nil {
		return fmt.Errorf("list nodemaintenances: %w", err)
	}
	draining := slices.DeleteFunc(covering(node, maintenances.Items), func(m v1alpha1.NodeMaintenance) bool { return !m.Spec.Drain || m.DeletionTimestamp != nil })
	if len(draining) == 0 {
		return fmt.Errorf("no maintenance drains node %s; if somebody drains it in another way, stop that, or withdraw what it asked for with kubectl drawbridge uncordon %s", node.Name, node.Name)
	}
	for i := range draining {
		if !whole && !onlyNode(&draining[i], node.Name) {
			return fmt.Errorf("nodemaintenance %s drains other nodes, too: stop it for all of them with --whole, or take this one out with kubectl drawbridge uncordon %s", draining[i].Name, node.Name)
		}
	}
	for i := range draining {
		if err := stopDraining(ctx, c, draining[i].Name); err != nil {
			return err
		}
		if o.output == formatName {
			if err := o.printObject(&draining[i]); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(o.Out, "nodemaintenance.drawbridge.dev/%s stopped; node %s stays cordoned: kubectl drawbridge uncordon %s\n", draining[i].Name, node.Name, node.Name)
	}
	return nil
}
