package informers

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow adds a handler to the informer of the object's kind, and returns whether it has seen
// the first list. It does not block.
func Follow(ctx context.Context, c cache.Informers, object client.Object, handler toolscache.ResourceEventHandler) (toolscache.InformerSynced, error) {
	informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	return registration.HasSynced, nil
}

// Handlers are those of one kind: put is called with what is there, remove with what was deleted.
// An object that has replaced another one of its name unseen is just put.
func Handlers[T client.Object](put, remove func(T)) toolscache.ResourceEventHandlerFuncs {
	call := func(function func(T), object any) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if one, ok := object.(T); ok {
			function(one)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { call(put, object) },
		UpdateFunc: func(_, object any) { call(put, object) },
		DeleteFunc: func(object any) { call(remove, object) },
	}
}
