package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// PodsToChange enqueues a pod only if there is something to do, which is decided from memory.
// So a restart finds what its predecessor left on pods, and ordinary changes of a pod cost
// nothing. Both fields are required.
type PodsToChange struct {
	// Delay is how long a pod waits in the queue.
	Delay time.Duration
	ToDo  func(context.Context, *corev1.Pod) (bool, error)
}

// Handler is for a watch of pods. It ignores deletions.
func (p PodsToChange) Handler() handler.EventHandler {
	return Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue Queue) { p.Enqueue(ctx, ev.Object, queue) },
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue Queue) { p.Enqueue(ctx, ev.ObjectNew, queue) },
	}
}

// Enqueue is for one pod.
func (p PodsToChange) Enqueue(ctx context.Context, obj client.Object, queue Queue) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	do, err := p.ToDo(ctx, pod)
	if err != nil {
		// If unknown, do not miss the event.
		log.FromContext(ctx).Error(err, "Looking for the request of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	if err != nil || do {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}, p.Delay)
	}
}
