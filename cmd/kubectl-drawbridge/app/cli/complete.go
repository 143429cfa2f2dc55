package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completionTimeout limits how long a user waits after pressing tab.
const completionTimeout = 3 * time.Second

// Complete completes with what find finds in the cluster.
func (o *Options) Complete(ctx context.Context, find func(context.Context, *Connection) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	c, err := o.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	found, err := find(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// CompleteFirst completes the first argument in the same way.
func (o *Options) CompleteFirst(find func(context.Context, *Connection) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.Complete(cmd.Context(), find)
	}
}

// names lists the names of objects of a kind, in the chosen namespace or
// cluster-scoped.
func (o *Options) names(ctx context.Context, kind string, namespaced bool) ([]string, cobra.ShellCompDirective) {
	return o.Complete(ctx, func(ctx context.Context, c *Connection) ([]string, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
		var options []client.ListOption
		if namespaced {
			options = append(options, client.InNamespace(c.Namespace))
		}
		if err := c.List(ctx, list, options...); err != nil {
			return nil, err
		}
		var found []string
		for i := range list.Items {
			found = append(found, list.Items[i].Name)
		}
		return found, nil
	})
}

// CompleteNamespaces completes a namespace.
func (o *Options) CompleteNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.names(cmd.Context(), "Namespace", false)
}

// CompleteNodes completes any number of nodes, or at most that many if most is not 0.
func (o *Options) CompleteNodes(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(cmd.Context(), "Node", false)
	}
}

// CompletePod completes the first argument, a pod.
func (o *Options) CompletePod(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.names(cmd.Context(), "Pod", true)
}
