package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

const (
	// completionTimeout limits how long a user waits after pressing tab.
	completionTimeout = 3 * time.Second
	// completionPage is how many names are read at a time, and about the most that are
	// offered: nobody reads more.
	completionPage = 500
)

// Resources whose names are completed.
var (
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
	nodes      = corev1.SchemeGroupVersion.WithResource("nodes")
	pods       = corev1.SchemeGroupVersion.WithResource("pods")

	HookResource   = v1alpha1.SchemeGroupVersion.WithResource("evacuationhooks")
	BudgetResource = v1alpha1.SchemeGroupVersion.WithResource("evictionbudgets")
)

// Complete completes what was typed with what find finds in the cluster. If it finds nothing
// in time, nothing is offered: the shell cannot show an error, and would offer files instead.
func (o *Options) Complete(ctx context.Context, typed string, find func(context.Context, *Connection) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	c, err := o.connect(completionTimeout)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, err := find(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found = slices.DeleteFunc(found, func(name string) bool { return !strings.HasPrefix(name, typed) })
	return found, cobra.ShellCompDirectiveNoFileComp
}

// names completes the names of objects: of the chosen namespace, or cluster-scoped. They may
// be given as KIND/NAME with these kinds. Those that are given already are not offered.
func (o *Options) names(ctx context.Context, resource schema.GroupVersionResource, namespaced bool, given []string, typed string, kinds ...string) ([]string, cobra.ShellCompDirective) {
	kind, prefix := "", typed
	for _, k := range kinds {
		if rest, ok := strings.CutPrefix(typed, k+"/"); ok {
			kind, prefix = k+"/", rest
		}
	}
	wanted := func(name string) bool {
		return strings.HasPrefix(name, prefix) && !slices.ContainsFunc(given, func(arg string) bool { return arg == name || strings.HasSuffix(arg, "/"+name) })
	}
	return o.Complete(ctx, typed, func(ctx context.Context, c *Connection) ([]string, error) {
		found, err := c.listNames(ctx, resource, namespaced, wanted)
		for i := range found {
			found[i] = kind + found[i]
		}
		return found, err
	})
}

// listNames returns the names that are wanted. It reads nothing but metadata, page by page, and
// asks for no discovery. What was found before time is up counts.
func (c *Connection) listNames(ctx context.Context, resource schema.GroupVersionResource, namespaced bool, wanted func(string) bool) ([]string, error) {
	all, err := metadata.NewForConfig(c.REST)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	var objects metadata.ResourceInterface = all.Resource(resource)
	if namespaced {
		objects = all.Resource(resource).Namespace(c.Namespace)
	}
	var found []string
	options := metav1.ListOptions{Limit: completionPage}
	for {
		page, err := objects.List(ctx, options)
		switch {
		case err != nil && len(found) > 0:
			return found, nil // A part of the names is better than none.
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for i := range page.Items {
			if name := page.Items[i].Name; wanted(name) {
				found = append(found, name)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" || len(found) >= completionPage {
			return found, nil
		}
	}
}

// CompleteFirst completes the first argument, an object of the namespace.
func (o *Options) CompleteFirst(resource schema.GroupVersionResource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(cmd.Context(), resource, true, nil, typed)
	}
}

// CompleteNamespaces completes a namespace.
func (o *Options) CompleteNamespaces(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return o.names(cmd.Context(), namespaces, false, nil, typed)
}

// CompleteNodes completes any number of nodes, or at most that many if most is not 0.
func (o *Options) CompleteNodes(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(cmd.Context(), nodes, false, args, typed, nodeKinds...)
	}
}

// CompletePod completes the first argument, a pod.
func (o *Options) CompletePod(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.names(cmd.Context(), pods, true, nil, typed, "pod")
}
