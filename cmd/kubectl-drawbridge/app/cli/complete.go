package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CompletionTimeout limits how long a user waits after pressing tab.
const CompletionTimeout = 3 * time.Second

// names lists the names of objects of a kind, in the chosen namespace or
// cluster-scoped.
func (o *Options) names(ctx context.Context, kind string, namespaced bool) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, CompletionTimeout)
	defer cancel()
	c, err := o.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
	var options []client.ListOption
	if namespaced {
		options = append(options, client.InNamespace(c.Namespace))
	}
	if err := c.List(ctx, list, options...); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []string
	_ = meta.EachListItem(list, func(object runtime.Object) error { // The function never fails.
		if accessor, err := meta.Accessor(object); err == nil {
			found = append(found, accessor.GetName())
		}
		return nil
	})
	return found, cobra.ShellCompDirectiveNoFileComp
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
