// Package controllers has what our controllers share: how they are added to a manager, with
// queues that obey an injected clock and can be woken from elsewhere, their back-off, the check
// of required fields, the limit of writes, and the rescan of all pods.
package controllers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is the queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Limiter spaces out the retries of a failed item.
type Limiter = workqueue.TypedRateLimiter[reconcile.Request]

// NewQueue returns a constructor for controller.Options.NewQueue. Its queues measure
// RequeueAfter and the back-off of errors by c, where controller-runtime's own
// priority queue reads the wall clock; and they report the workqueue_* metrics
// under the controller's name (statement 107).
func NewQueue(c clock.WithTicker) func(name string, limiter Limiter) Queue {
	return func(name string, limiter Limiter) Queue {
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
			Name:  name,
			Clock: c,
		})
	}
}

// FastBackoff retries after 10 ms, doubled up to 30 s. The default of the queue goes up to
// 1000 s, which is too long to notice that an outage is over.
func FastBackoff() Limiter {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, 30*time.Second)
}

// SlowBackoff retries after 250 ms, doubled up to a minute. It is for calls that depend on
// others: their failures last longer than ours, and a minute is still well before the
// heartbeat deadline.
func SlowBackoff() Limiter {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](250*time.Millisecond, time.Minute)
}
