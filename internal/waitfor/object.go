package waitfor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
)

// object is one that is watched.
type object struct {
	informer toolscache.SharedIndexInformer
	stop     context.CancelFunc
	// done is closed when the object is no longer watched.
	done chan struct{}

	mu        sync.Mutex
	followers map[string]func()
	// end is why the object is no longer watched.
	end error
}

// join adds a follower to an object that is watched. It returns nil if there is none.
func (w *Watches) join(ref Ref, follower string, changed func()) (*object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil, fmt.Errorf("watch %s: %w", ref, errEnded)
	}
	o := w.of[ref]
	if o != nil {
		o.follow(follower, changed)
	}
	return o, nil
}

// begin starts the informer of an object, if nobody else has meanwhile.
func (w *Watches) begin(ref Ref, resource schema.GroupVersionResource, follower string, changed func()) (*object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil, fmt.Errorf("watch %s: %w", ref, errEnded)
	}
	if o := w.of[ref]; o != nil {
		o.follow(follower, changed)
		return o, nil
	}
	// The informer outlives the call of Get: Release and Run end it.
	ctx, stop := context.WithCancel(context.Background())
	o := &object{stop: stop, done: make(chan struct{}), followers: map[string]func(){follower: changed}}
	o.informer = dynamicinformer.NewFilteredDynamicInformer(w.dynamic, resource, ref.Namespace, 0, toolscache.Indexers{},
		func(options *metav1.ListOptions) { options.FieldSelector = selector(ref) }).Informer()
	_, err := o.informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, first bool) {
			if !first {
				o.tell()
			}
		},
		UpdateFunc: func(_, _ any) { o.tell() },
		DeleteFunc: func(any) { o.tell() },
	})
	err = errors.Join(err,
		o.informer.SetTransform(withoutManagedFields),
		o.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) { w.failed(ref, resource, o, err) }),
	)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch %s: %w", ref, err)
	}
	w.of[ref] = o
	w.running.Go(func() { o.informer.RunWithContext(ctx) })
	return o, nil
}

// failed ends a watch that is forbidden now, or whose kind is gone: the next Get says so.
// The informer recovers from everything else.
func (w *Watches) failed(ref Ref, resource schema.GroupVersionResource, o *object, err error) {
	w.log.V(1).Info("Watching an object failed", "object", ref.String(), "reason", err.Error())
	end := w.unreadable(ref, resource, err)
	if end == err { //nolint:errorlint // Is it this very one?
		return
	}
	w.mu.Lock()
	if w.of[ref] == o {
		w.forget(ref, o, end)
	}
	w.mu.Unlock()
	o.tell()
}

// forget ends the watch of an object. The caller holds the lock.
func (w *Watches) forget(ref Ref, o *object, why error) {
	delete(w.of, ref)
	o.mu.Lock()
	o.end = why
	o.mu.Unlock()
	close(o.done)
	o.stop()
}

func (o *object) follow(follower string, changed func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.followers[follower] = changed
}

// leave removes a follower, and returns how many there still are.
func (o *object) leave(follower string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.followers, follower)
	return len(o.followers)
}

// tell tells all followers.
func (o *object) tell() {
	o.mu.Lock()
	followers := slices.Collect(maps.Values(o.followers))
	o.mu.Unlock()
	for _, changed := range followers {
		changed()
	}
}

func (o *object) synced() <-chan struct{} { return o.informer.HasSyncedChecker().Done() }

// why returns why the object is no longer watched.
func (o *object) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end
}

// get returns the object from memory.
func (o *object) get(ref Ref) (map[string]any, error) {
	item, exists, err := o.informer.GetStore().GetByKey(ref.Namespace + "/" + ref.Name)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", ref, err)
	}
	found, ok := item.(*unstructured.Unstructured)
	if !exists || !ok {
		return nil, nil
	}
	return found.Object, nil
}

// withoutManagedFields takes out what is often the largest part, and nobody waits for.
func withoutManagedFields(item any) (any, error) {
	if u, ok := item.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
	}
	return item, nil
}
