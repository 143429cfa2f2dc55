package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvictionBudgets lists EvictionBudgets. There are none in a cluster that does not know them.
func (c *Connection) EvictionBudgets(ctx context.Context, options ...client.ListOption) ([]v1alpha1.EvictionBudget, error) {
	var list v1alpha1.EvictionBudgetList
	err := c.listIfKnown(ctx, &list, "evictionbudgets", options)
	return list.Items, err
}

// EvictionBudgetsIfAllowed lists EvictionBudgets for commands that have an answer without
// them. Who may not read them is warned.
func (o *Options) EvictionBudgetsIfAllowed(ctx context.Context, c *Connection, options ...client.ListOption) ([]v1alpha1.EvictionBudget, error) {
	budgets, err := c.EvictionBudgets(ctx, options...)
	return budgets, o.warnIfForbidden("EvictionBudgets", err)
}

// Hooks lists EvacuationHooks. There are none in a cluster that does not know them.
func (c *Connection) Hooks(ctx context.Context, options ...client.ListOption) ([]v1alpha1.EvacuationHook, error) {
	var list v1alpha1.EvacuationHookList
	err := c.listIfKnown(ctx, &list, "evacuationhooks", options)
	return list.Items, err
}

// HooksIfAllowed lists EvacuationHooks for commands that have an answer without them. Who
// may not read them is warned.
func (o *Options) HooksIfAllowed(ctx context.Context, c *Connection, options ...client.ListOption) ([]v1alpha1.EvacuationHook, error) {
	hooks, err := c.Hooks(ctx, options...)
	return hooks, o.warnIfForbidden("hooks", err)
}

// RequestsIfAllowed lists EvictionRequests for commands that have an answer without them.
// There are none in a cluster that does not know them. Who may not read them is warned.
func (o *Options) RequestsIfAllowed(ctx context.Context, c *Connection, options ...client.ListOption) ([]v1alpha1.EvictionRequest, error) {
	var list v1alpha1.EvictionRequestList
	err := c.listIfKnown(ctx, &list, "evictionrequests", options)
	return list.Items, o.warnIfForbidden("EvictionRequests", err)
}

// listIfKnown lists objects of a kind that an older Drawbridge, or one without the feature, does
// not have.
func (c *Connection) listIfKnown(ctx context.Context, list client.ObjectList, what string, options []client.ListOption) error {
	err := c.List(ctx, list, options...)
	if err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("list %s: %w", what, err)
}

func (o *Options) warnIfForbidden(what string, err error) error {
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(o.ErrOut, "Warning: %s are left out: %v\n", what, err)
		return nil
	}
	return err
}
