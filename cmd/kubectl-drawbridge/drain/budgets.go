package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
)

// grantedLater is when the last EvictionBudget lets the pod go; empty if none covers it, or
// if their turn is over.
func (in *fateInput) grantedLater() string {
	if len(in.budgetStatuses) == 0 || in.request != nil && slices.Contains(in.request.Status.ProcessedInterceptors, v1alpha1.BudgetInterceptor) {
		return ""
	}
	last := budgetstatus.Last(in.budgetStatuses)
	return fmt.Sprintf("; EvictionBudget %s: %s", last.Budget, last.Text)
}

// foretellGrants says of each pod when its EvictionBudgets let it go. Pods count in the order
// in which the plan lists them: what may go now takes the place of those that follow.
func (d *options) foretellGrants(inputs []fateInput, budgets []v1alpha1.EvictionBudget, nodes map[string]*corev1.Node) {
	now := d.Clock.Now()
	before := map[*v1alpha1.EvictionBudget]map[string]int32{}
	for _, in := range inOrder(inputs) {
		if fateOf(*in).stays || in.pod.DeletionTimestamp != nil || in.blocks() != "" {
			continue
		}
		covering := budgetstatus.Covering(in.pod, budgets)
		node := nodes[in.pod.Spec.NodeName]
		for _, b := range covering {
			in.budgetStatuses = append(in.budgetStatuses, budgetstatus.Of(budgetstatus.Input{Budget: b, Pod: in.pod, Node: node, Before: before[b], Now: now}))
		}
		if len(covering) == 0 || budgetstatus.Last(in.budgetStatuses).When != budgetstatus.Now {
			continue
		}
		for _, b := range covering {
			if group, known := budgetstatus.GroupOf(b, in.pod, node); known && budgetstatus.Unavailable(b, in.pod, now) == "" {
				if before[b] == nil {
					before[b] = map[string]int32{}
				}
				before[b][group]++
			}
		}
	}
}

// inOrder sorts as the plan does.
func inOrder(inputs []fateInput) []*fateInput {
	sorted := make([]*fateInput, 0, len(inputs))
	for i := range inputs {
		sorted = append(sorted, &inputs[i])
	}
	slices.SortFunc(sorted, func(a, b *fateInput) int { return byPlace(fateOf(*a), fateOf(*b)) })
	return sorted
}

// nodesByName reads the nodes, if a budget groups by their labels.
func (d *options) nodesByName(ctx context.Context, c *cli.Connection, names []string, budgets []v1alpha1.EvictionBudget) (map[string]*corev1.Node, error) {
	found := map[string]*corev1.Node{}
	if !slices.ContainsFunc(budgets, func(b v1alpha1.EvictionBudget) bool { return b.Spec.GroupBy != nil && b.Spec.GroupBy.NodeLabel != "" }) {
		return found, nil
	}
	for _, name := range names {
		node, err := c.Node(ctx, name)
		if err != nil {
			return nil, err
		}
		found[name] = node
	}
	return found, nil
}
