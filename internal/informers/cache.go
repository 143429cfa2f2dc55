// Package informers makes the manager's cache cheaper where every pod costs something: the
// handlers of pods share a listener, to visit all pods copies none of them, and to ask for an
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
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// NewCache returns a function for the manager's options. The informer of pods gathers the
// handlers that are added at about the same time. To each of them it is like any informer:
// it gets all pods first, and then their events in order. But those that are gathered share
// a goroutine, so none may block. Everything else is the cache itself.
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

	mu   sync.Mutex
	pods *informer
	// requests is nil until the informer of requests is wanted.
	requests atomic.Pointer[store]
}

// GetInformer is of the cache, with an informer of pods that gathers.
func (c *cheaper) GetInformer(ctx context.Context, obj client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	inner, err := c.Cache.GetInformer(ctx, obj, options...)
	if err != nil {
		return nil, err //nolint:wrapcheck // It is the cache, to those who call.
	}
	switch obj.(type) {
	case *corev1.Pod:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pods == nil || c.pods.Informer != inner {
			c.pods = &informer{Informer: inner, clock: c.clock, log: c.log}
		}
		return c.pods, nil
	case *v1alpha1.EvictionRequest:
		shared, ok := inner.(toolscache.SharedIndexInformer)
		if !ok {
			return nil, fmt.Errorf("the informer of EvictionRequests is a %T, which does not show what it holds", inner)
		}
		c.requests.CompareAndSwap(nil, &store{informer: shared})
	}
	return inner, nil
}

// EachPod calls visit for every pod that a reader has, which is shared and must not be
// changed. A cache of NewCache copies no pod for it: to list the 150,000 pods of a large
// cluster takes 185 MiB. The error is the reader's.
func EachPod(ctx context.Context, reader client.Reader, visit func(*corev1.Pod)) error {
	if c, ok := reader.(*cheaper); ok {
		return c.eachPod(ctx, visit)
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		visit(&pods.Items[i])
	}
	return nil
}

func (c *cheaper) eachPod(ctx context.Context, visit func(*corev1.Pod)) error {
	inner, err := c.Cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("get the informer of pods: %w", err)
	}
	shared, ok := inner.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("the informer of pods is a %T, which does not show what it holds", inner)
	}
	for _, obj := range shared.GetIndexer().List() {
		if pod, ok := obj.(*corev1.Pod); ok {
			visit(pod)
		}
	}
	return nil
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
	if _, ok := obj.(*v1alpha1.EvictionRequest); ok && c.requests.Load().lacks(key) {
		return errNoRequest
	}
	return c.Cache.Get(ctx, key, obj, options...) //nolint:wrapcheck // It is the cache, to those who call.
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

// lacks reports whether the informer has synced and does not have an object.
func (s *store) lacks(key client.ObjectKey) bool {
	if s == nil || !s.synced.Load() && !s.informer.HasSynced() {
		return false
	}
	s.synced.Store(true) // It stays so.
	_, exists, err := s.informer.GetIndexer().GetByKey(key.Namespace + "/" + key.Name)
	return err == nil && !exists
}
