package deadline

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// retryKind is how long a kind that cannot be read is left alone. Nodes of Cluster API
	// name a Machine that usually lives in another cluster.
	retryKind = 5 * time.Minute
	// patience is how long a request waits for a kind to be read for the first time.
	patience = 5 * time.Second
)

// kind is a kind that is followed, or that could not be.
type kind struct {
	// settled is closed when its objects are known, or cannot be read.
	settled chan struct{}
	// again: it could not be read before, which is told already.
	again bool
	// retryAt is when to try again; zero while it is followed.
	retryAt time.Time
}

// follow starts to follow a kind, unless that is done, or was tried a moment ago.
func (b *Book) follow(of translate.DeadlineKind) *kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.kinds[of.Option]; known != nil && (known.retryAt.IsZero() || b.Clock.Now().Before(known.retryAt)) {
		return known
	}
	begun := &kind{settled: make(chan struct{}), again: b.kinds[of.Option] != nil}
	b.kinds[of.Option] = begun
	go func() {
		defer close(begun.settled)
		if err := b.begin(of, begun); err != nil {
			b.fail(of, begun, err)
		}
	}()
	return begun
}

// await waits until the objects of a kind are known, but not for long.
func (b *Book) await(ctx context.Context, of translate.DeadlineKind) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-b.follow(of).settled:
	case <-ctx.Done():
	}
}

// fail notes that a kind cannot be read, so what its objects said is not known any more.
func (b *Book) fail(of translate.DeadlineKind, failed *kind, err error) {
	b.mu.Lock()
	first := failed.retryAt.IsZero()
	failed.retryAt = b.Clock.Now().Add(retryKind)
	var said []types.NamespacedName
	for object := range b.objects {
		if strings.HasPrefix(object.Namespace, of.Option+"/") {
			said = append(said, object)
		}
	}
	b.mu.Unlock()
	for _, object := range said {
		b.put(object, "", translate.Learnt{})
	}
	if first {
		level := 0
		if failed.again {
			level = 1
		}
		b.Log.V(level).Info("Deadlines are not learnt from a kind", "kind", of.String(), "reason", err.Error(), "retry", retryKind.String())
	}
}

// run reads the objects and returns when they are known. Its informer goes on until it
// fails, or the context ends.
func (b *Book) run(ctx context.Context, of translate.DeadlineKind, running *kind) error {
	mapping, err := b.Mapper.RESTMapping(of.GroupKind)
	if err != nil {
		return fmt.Errorf("find %s: %w", of.GroupKind, err)
	}
	ctx, stop := context.WithCancel(ctx)
	informer := dynamicinformer.NewFilteredDynamicInformer(b.Dynamic, mapping.Resource, metav1.NamespaceAll, 0, toolscache.Indexers{}, nil).Informer()
	name := func(object *unstructured.Unstructured) types.NamespacedName {
		// Two kinds may have objects of one name.
		return types.NamespacedName{Namespace: of.Option + "/" + object.GetNamespace(), Name: object.GetName()}
	}
	registered, err := informer.AddEventHandler(informers.Handlers(
		func(object *unstructured.Unstructured) { node, d := of.Of(object); b.put(name(object), node, d) },
		func(object *unstructured.Unstructured) { b.put(name(object), "", translate.Learnt{}) },
	))
	if err == nil {
		err = informer.SetTransform(func(obj any) (any, error) { return slim(obj, of.Fields), nil })
	}
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
			b.Log.V(1).Info("Watching a kind failed", "kind", of.String(), "reason", err.Error())
			// The informer recovers from everything else.
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
				b.fail(of, running, err)
				stop()
			}
		})
	}
	if err != nil {
		stop()
		return fmt.Errorf("watch %s: %w", of.GroupKind, err)
	}
	go func() {
		defer stop()
		informer.RunWithContext(ctx)
	}()
	toolscache.WaitForCacheSync(ctx.Done(), registered.HasSynced)
	return nil
}

// slim keeps the identity of an object, and some fields.
func slim(obj any, fields [][]string) any {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj
	}
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetGroupVersionKind(object.GroupVersionKind())
	kept.SetNamespace(object.GetNamespace())
	kept.SetName(object.GetName())
	kept.SetUID(object.GetUID())
	kept.SetResourceVersion(object.GetResourceVersion())
	for _, path := range fields {
		value, found, err := unstructured.NestedFieldCopy(object.Object, path...)
		if err != nil || !found {
			continue
		}
		if err := unstructured.SetNestedField(kept.Object, value, path...); err != nil {
			continue // A parent is not an object: then nobody can read it.
		}
	}
	return kept
}
