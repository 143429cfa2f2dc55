// Package clockqueue makes work queues whose delays obey an injected clock.
package clockqueue

import (
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New returns a constructor for controller.Options.NewQueue. Its queues measure
// RequeueAfter and the back-off of errors by c, where controller-runtime's own
// priority queue reads the wall clock; and they report the workqueue_* metrics
// under the controller's name (statement 107).
func New(c clock.WithTicker) func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
			Name:  name,
			Clock: c,
		})
	}
}
