package registration

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
)

// SetupWithCache feeds the registry from the informers of EvictionInterceptors,
// Namespaces and, with Options.Hooks and Options.Budgets, EvacuationHooks and
// EvictionBudgets.
func (r *Registry) SetupWithCache(ctx context.Context, cached cache.Informers) error {
	if err := controllers.Require("registry of interceptors", map[string]bool{
		"Namespace": r.options.Namespace != "", "Account": r.options.Account != "" || !r.options.Hooks && !r.options.Budgets && r.options.Native == nil,
	}); err != nil {
		return err
	}
	type feed struct {
		object  client.Object
		handler toolscache.ResourceEventHandlerDetailedFuncs
	}
	feeds := []feed{
		{&v1alpha1.EvictionInterceptor{}, handlers(r.put, r.remove)},
		{&corev1.Namespace{}, handlers(r.putNamespace, r.removeNamespace)},
	}
	if r.options.Hooks {
		feeds = append(feeds, feed{&v1alpha1.EvacuationHook{}, handlers(r.putHook, r.remove)})
	}
	if r.options.Budgets {
		feeds = append(feeds, feed{&v1alpha1.EvictionBudget{}, handlers(r.putBudget, r.removeBudget)})
	}
	for _, feed := range feeds {
		synced, err := informers.Follow(ctx, cached, feed.object, feed.handler)
		if err != nil {
			return fmt.Errorf("registry of interceptors: %w", err)
		}
		r.feeds = append(r.feeds, synced)
	}
	return nil
}

// handlers of an informer. The key is NAME or NAMESPACE/NAME.
func handlers[T client.Object](put func(T), remove func(key string)) toolscache.ResourceEventHandlerDetailedFuncs {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, _ bool) {
			if object, ok := obj.(T); ok {
				put(object)
			}
		},
		UpdateFunc: func(_, obj any) {
			if object, ok := obj.(T); ok {
				put(object)
			}
		},
		DeleteFunc: func(obj any) {
			if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				remove(key)
			}
		},
	}
}

// Synced reports whether the registry has seen all initial registrations and
// namespaces. Before that, do not rely on its answers.
func (r *Registry) Synced() bool {
	if r.synced.Load() {
		return true
	}
	for _, synced := range r.feeds {
		if !synced() {
			return false
		}
	}
	r.synced.Store(true)
	return true
}

// update changes the next snapshot and notifies the subscribers.
func (r *Registry) update(apply func(next *snapshot) change) {
	r.mu.Lock()
	made := apply(r.next)
	r.dirty.Store(true)
	var subscribers []func(change)
	if r.Synced() {
		r.publish()
		subscribers = slices.Clone(r.subscribers)
	}
	accepted, refused := r.next.count()
	r.mu.Unlock()
	if made.registration != "" {
		r.options.Metrics.Registrations(accepted, refused)
	}
	for _, f := range subscribers {
		f(made)
	}
}

func (r *Registry) put(from *v1alpha1.EvictionInterceptor) {
	r.putEntry(from.Name, from.UID, from.Generation, func() *entry { return compileEntry(from, r.options.AllowedReserved) })
}

// putEntry adds or replaces the registration of that key, unless it is known.
func (r *Registry) putEntry(key string, uid types.UID, generation int64, compile func() *entry) {
	r.mu.Lock()
	known, _, ok := r.next.known(key)
	r.mu.Unlock()
	if ok && known.uid == uid && known.generation == generation {
		return // Only the status or metadata have changed.
	}
	// Compiling takes milliseconds, so it happens outside of the lock. Events of one
	// kind come one after the other.
	e := compile()
	r.update(func(next *snapshot) change {
		next.put(e)
		return change{registration: key}
	})
}

func (r *Registry) remove(key string) {
	r.mu.Lock()
	known, _, ok := r.next.known(key)
	r.mu.Unlock()
	if !ok {
		return
	}
	r.update(func(next *snapshot) change {
		next.remove(key)
		return change{registration: key}
	})
	if !known.isHook() {
		r.options.Metrics.Forget(known.Name)
	}
}

func (r *Registry) putNamespace(namespace *corev1.Namespace) {
	r.mu.Lock()
	known := r.next.namespaces[namespace.Name]
	r.mu.Unlock()
	if known != nil && sameNamespace(known.object, namespace) {
		return
	}
	r.update(func(next *snapshot) change {
		next.putNamespace(namespace)
		return change{namespace: namespace.Name}
	})
}

func (r *Registry) removeNamespace(name string) {
	r.update(func(next *snapshot) change {
		delete(next.namespaces, name)
		return change{namespace: name}
	})
}

// sameNamespace compares what expressions and selectors see of a namespace.
func sameNamespace(a, b *corev1.Namespace) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}
