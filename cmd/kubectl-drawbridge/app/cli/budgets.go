package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvictionBudgets lists EvictionBudgets. There are none in a cluster that does not know them:
// an older Drawbridge, or one without the feature.
func (c *Connection) EvictionBudgets(ctx context.Context, options ...client.ListOption) ([]v1alpha1.EvictionBudget, error) {
	var budgets v1alpha1.EvictionBudgetList
	switch err := c.List(ctx, &budgets, options...); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list evictionbudgets: %w", err)
	}
	return budgets.Items, nil
}

// EvictionBudgetsIfAllowed lists EvictionBudgets for commands that have an answer without
// them. Who may not read them is warned.
func (o *Options) EvictionBudgetsIfAllowed(ctx context.Context, c *Connection, options ...client.ListOption) ([]v1alpha1.EvictionBudget, error) {
	budgets, err := c.EvictionBudgets(ctx, options...)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(o.ErrOut, "Warning: EvictionBudgets are left out: %v\n", err)
		return nil, nil
	}
	return budgets, err
}
