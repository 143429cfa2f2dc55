package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Handler calls a function for each event of a watch; none if it is nil. It is
// handler.Funcs without the priorities, which our queues do not have, and for which that
// looks at types by reflection: a tenth of what an event of a pod cost us.
type Handler struct {
	CreateFunc func(context.Context, event.CreateEvent, Queue)
	UpdateFunc func(context.Context, event.UpdateEvent, Queue)
	DeleteFunc func(context.Context, event.DeleteEvent, Queue)
}

var _ handler.EventHandler = Handler{}

// Create calls CreateFunc.
func (h Handler) Create(ctx context.Context, ev event.CreateEvent, queue Queue) {
	if h.CreateFunc != nil {
		h.CreateFunc(ctx, ev, queue)
	}
}

// Update calls UpdateFunc.
func (h Handler) Update(ctx context.Context, ev event.UpdateEvent, queue Queue) {
	if h.UpdateFunc != nil {
		h.UpdateFunc(ctx, ev, queue)
	}
}

// Delete calls DeleteFunc.
func (h Handler) Delete(ctx context.Context, ev event.DeleteEvent, queue Queue) {
	if h.DeleteFunc != nil {
		h.DeleteFunc(ctx, ev, queue)
	}
}

// Generic does nothing: such events are not of a watch.
func (h Handler) Generic(context.Context, event.GenericEvent, Queue) {}
