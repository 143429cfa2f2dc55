package maintenance

import (
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// Part is one of the three controllers, for tests that deliver events themselves.
type Part struct {
	Queue     controllers.Queue
	Reconcile reconcile.Func
	Events    handler.EventHandler
}

// Parts makes the controllers without a manager, with queues of the test's own.
func (c *Controller) Parts(newQueue func() controllers.Queue) (plans, nodes, pods, requests, namespaces Part, err error) {
	if err = c.validate(); err != nil {
		return plans, nodes, pods, requests, namespaces, err
	}
	c.init()
	c.plans, c.nodes, c.pods = newQueue(), newQueue(), newQueue()
	plans = Part{c.plans, c.reconcilePlan, c.planEvents()}
	nodes = Part{c.nodes, c.reconcileNode, c.nodeEvents()}
	pods = Part{c.pods, c.reconcilePod, c.podEvents()}
	return plans, nodes, pods, Part{Events: c.requestEvents()}, Part{Events: c.namespaceEvents()}, nil
}
