package maintenance

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// Part is one of the controllers, for tests that deliver events themselves.
type Part struct {
	Queue     controllers.Queue
	Reconcile reconcile.Func
	Events    handler.EventHandler
}

// Parts makes the controllers without a manager, by name, with queues of the test's own, which it
// makes in the order of these names: plans, nodes, pods, evictions.
func (c *Controller) Parts(newQueue func() controllers.Queue) (map[string]Part, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.init()
	c.plans, c.nodes, c.pods = newQueue(), newQueue(), newQueue()
	evictions := newQueue()
	return map[string]Part{
		"plans":      {c.plans, c.reconcilePlan, c.planEvents()},
		"nodes":      {c.nodes, c.reconcileNode, c.nodeEvents()},
		"pods":       {c.pods, c.reconcilePod, c.podEvents()},
		"evictions":  {evictions, c.reconcileEviction, nil},
		"requests":   {Events: c.requestEvents()},
		"namespaces": {Events: c.namespaceEvents()},
	}, c.evictions.Start(context.Background(), evictions)
}
