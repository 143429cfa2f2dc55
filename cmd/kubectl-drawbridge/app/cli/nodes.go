package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeKinds are the words for a node in KIND/NAME.
var nodeKinds = []string{"node", "nodes", "no"}

// NodeArguments returns the names of nodes, which may be given as node/NAME, as in
// kubectl.
func NodeArguments(args []string) ([]string, error) {
	names := make([]string, 0, len(args))
	for _, arg := range args {
		kind, name, typed := strings.Cut(arg, "/")
		switch {
		case !typed:
			name = arg
		case !slices.Contains(nodeKinds, kind):
			return nil, fmt.Errorf("%q is no node: name nodes as NAME or node/NAME", arg)
		}
		names = append(names, name)
	}
	return names, nil
}

// Node reads a node that the user named.
func (c *Connection) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no node %q: kubectl get nodes lists them", name)
	case err != nil:
		return nil, fmt.Errorf("get node %s: %w", name, err)
	}
	return node, nil
}
