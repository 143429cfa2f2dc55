// Package informers makes the manager's cache cheaper where every pod costs something: its
// informer may hold them packed, the handlers of pods share a listener, and to ask for an
// EvictionRequest that does not exist, as nearly all pods have none, is a lookup in a map.
package informers

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// NewCache returns a function for the manager's options. The informer of pods may hold them
// packed (packed.Sharing): those who ask for pods get pods. It gathers the handlers that
// are added at about the same time. To each of them it is like any informer: it gets all
// pods first, and then their events in order. But those that are gathered share a goroutine,
// so none may block. Everything else is the cache itself.
func NewCache(clock clock.WithDelayedExecution, log logr.Logger) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		inner, err := cache.New(config, options)
		if err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
		return &cheaper{Cache: inner, clock: clock, log: log}, nil
	}
}

type cheaper struct {
	cache.Cache

	clock clock.WithDelayedExecution
	log   logr.Logger

	mu       sync.Mutex
	gatherer *informer
	// pods and requests are nil until their informers are wanted.
	pods, requests atomic.Pointer[store]
}

// GetInformer is of the cache, with an informer of pods that gathers.
func (c *cheaper) GetInformer(ctx context.Context, obj client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	inner, err := c.Cache.GetInformer(ctx, obj, options...)
	if err != nil {
		return nil, err //nolint:wrapcheck // It is the cache, to those who call.
	}
	switch obj.(type) {
	case *corev1.Pod:
		if err := open(&c.pods, inner); err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.gatherer == nil || c.gatherer.Informer != inner {
			c.gatherer = &informer{Informer: inner, clock: c.clock, log: c.log}
		}
		return c.gatherer, nil
	case *v1alpha1.EvictionRequest:
		if err := open(&c.requests, inner); err != nil {
			return nil, err
		}
	}
	return inner, nil
}

// GetInformerForKind is of the cache, with the same informer of pods.
func (c *cheaper) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, options ...cache.InformerGetOption) (cache.Informer, error) {
	if kind == corev1.SchemeGroupVersion.WithKind("Pod") {
		return c.GetInformer(ctx, &corev1.Pod{}, options...)
	}
	return c.Cache.GetInformerForKind(ctx, kind, options...) //nolint:wrapcheck // It is the cache, to those who call.
}

// LastSyncResourceVersion is the resource version up to which a cache's informer has seen all
// objects of a kind. It is empty before the first list. The cache has the kind as a whole,
// not by namespace.
func LastSyncResourceVersion(ctx context.Context, c cache.Informers, obj client.Object) (string, error) {
	inner, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return "", fmt.Errorf("get the informer of %T: %w", obj, err)
	}
	if gathers, ok := inner.(*informer); ok {
		inner = gathers.Informer
	}
	shared, ok := inner.(toolscache.SharedIndexInformer)
	if !ok {
		return "", fmt.Errorf("the informer of %T is a %T, which does not show what it has seen", obj, inner)
	}
	return shared.LastSyncResourceVersion(), nil
}

// Get is of the cache. That there is no such request is found out first.
func (c *cheaper) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	switch obj := obj.(type) {
	case *v1alpha1.EvictionRequest:
		if c.requests.Load().lacks(key) {
			return errNoRequest
		}
	case *corev1.Pod:
		if pods := c.pods.Load(); pods != nil {
			if err := c.await(ctx, pods); err != nil {
				return err
			}
			return pods.getPod(key, obj, options)
		}
	}
	return c.Cache.Get(ctx, key, obj, options...) //nolint:wrapcheck // It is the cache, to those who call.
}

// List is of the cache, but for pods.
func (c *cheaper) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if list, ok := list.(*corev1.PodList); ok {
		if pods := c.pods.Load(); pods != nil {
			if err := c.await(ctx, pods); err != nil {
				return err
			}
			return pods.listPods(list, options)
		}
	}
	return c.Cache.List(ctx, list, options...) //nolint:wrapcheck // It is the cache, to those who call.
}

// IndexField is of the cache, but for pods.
func (c *cheaper) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if _, ok := obj.(*corev1.Pod); !ok {
		return c.Cache.IndexField(ctx, obj, field, extract) //nolint:wrapcheck // It is the cache, to those who call.
	}
	if _, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	return c.pods.Load().indexPods(field, extract)
}

// await waits until the informer of pods has synced, as the cache's own reader does.
func (c *cheaper) await(ctx context.Context, pods *store) error {
	if pods.ready() {
		return nil
	}
	if _, err := c.Cache.GetInformer(ctx, &corev1.Pod{}); err != nil {
		return err //nolint:wrapcheck // It is the cache, to those who call.
	}
	if !pods.ready() {
		return &cache.ErrCacheNotStarted{}
	}
	return nil
}

// errNoRequest says less than the cache does, which composes a sentence each time.
var errNoRequest error = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "the EvictionRequest is not found",
}}

// store is what an informer holds.
type store struct {
	informer toolscache.SharedIndexInformer
	synced   atomic.Bool
}

// open sets a store that has not been opened yet.
func open(s *atomic.Pointer[store], inner cache.Informer) error {
	shared, ok := inner.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("the informer is a %T, which does not show what it holds", inner)
	}
	s.CompareAndSwap(nil, &store{informer: shared})
	return nil
}

func (s *store) ready() bool {
	if !s.synced.Load() && !s.informer.HasSynced() {
		return false
	}
	s.synced.Store(true) // It stays so.
	return true
}

// lacks reports whether the informer has synced and does not have an object.
func (s *store) lacks(key client.ObjectKey) bool {
	if s == nil || !s.ready() {
		return false
	}
	_, exists, err := s.informer.GetIndexer().GetByKey(storeKey(key))
	return err == nil && !exists
}

func storeKey(key client.ObjectKey) string { return key.Namespace + "/" + key.Name }
