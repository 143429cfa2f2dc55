package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Hooks lists EvacuationHooks. There are none in a cluster that does not know them: an
// older Drawbridge, or one without the feature.
func (c *Connection) Hooks(ctx context.Context, options ...client.ListOption) ([]v1alpha1.EvacuationHook, error) {
	var hooks v1alpha1.EvacuationHookList
	switch err := c.List(ctx, &hooks, options...); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list evacuationhooks: %w", err)
	}
	return hooks.Items, nil
}

// HooksIfAllowed lists EvacuationHooks for commands that have an answer without them. Who
// may not read them is warned.
func (o *Options) HooksIfAllowed(ctx context.Context, c *Connection, options ...client.ListOption) ([]v1alpha1.EvacuationHook, error) {
	hooks, err := c.Hooks(ctx, options...)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(o.ErrOut, "Warning: hooks are left out: %v\n", err)
		return nil, nil
	}
	return hooks, err
}
