package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// ofNamespace makes a command one about objects of a namespace: all of them, or the one that is
// named. The word is for what one of them is called.
func (o commands) ofNamespace(cmd *cobra.Command, word string, one, all func(ctx context.Context, c *cli.Connection, name string) error) {
	everywhere := false
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "the "+word+"s of all namespaces")
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if everywhere && len(args) > 0 {
			return fmt.Errorf("a %s has a namespace: give --namespace with a name, not --all-namespaces", word)
		}
		c, err := o.Connect()
		switch {
		case err != nil:
			return err
		case len(args) > 0:
			return one(cmd.Context(), c, args[0])
		case everywhere:
			return all(cmd.Context(), c, "")
		}
		return all(cmd.Context(), c, c.Namespace)
	}
}

// get reads an object of the chosen namespace.
func get(ctx context.Context, c *cli.Connection, object client.Object, kind, name string) error {
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, object); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s %q in namespace %q: see --namespace", kind, name, c.Namespace)
	case err != nil:
		return fmt.Errorf("get %s %s: %w", strings.ToLower(kind), name, err)
	}
	return nil
}

// none says that there is none in the namespace, or anywhere if that is empty.
func (o commands) none(kind, namespace string) error {
	if namespace != "" {
		namespace = " in namespace " + namespace
	}
	fmt.Fprintf(o.Out, "There is no %s%s.\n", kind, namespace)
	return nil
}
