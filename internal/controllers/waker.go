package controllers

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Waker wakes a controller for an object, from anywhere. Before the controller runs it does
// nothing: then its watches tell of every object.
type Waker struct{ queue atomic.Pointer[Queue] }

// Start stores the queue. It is a source.Func of the controller.
func (w *Waker) Start(_ context.Context, q Queue) error {
	w.queue.Store(&q)
	return nil
}

// Wake enqueues an object once the delay is over. Many calls until then are one reconciliation.
func (w *Waker) Wake(object types.NamespacedName, delay time.Duration) {
	if q := w.queue.Load(); q != nil {
		(*q).AddAfter(reconcile.Request{NamespacedName: object}, delay)
	}
}
