package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/internal/informers"
)

// The indexes of both kinds, by the UID and by the name of the pod.
const (
	byUID  = "target.pod.uid"
	byName = "target.pod.name"
)

// errUnknown says that the view has not begun yet.
var errUnknown = errors.New("it is not known yet whether the API server serves lifecycle.k8s.io, and what there is of it")

// syncTimeout is how long the first list may take.
const syncTimeout = time.Minute

// View is what is cached of the native API, on every replica, as long as it is served. It is
// empty otherwise. The zero value is not usable; see NewView. Safe for concurrent use.
type View struct {
	config *rest.Config
	scheme *runtime.Scheme
	// inCharge reports whether the controllers are ours, known whether an empty view means that
	// there is nothing.
	inCharge, known func() bool
	// saw is told of each Eviction, lost that the API is not served any more. Both are optional.
	saw  func(*lifecyclev1alpha1.Eviction)
	lost func()

	mu        sync.RWMutex
	cache     cache.Cache
	listeners []func(types.NamespacedName)
	named     []func(types.NamespacedName)
	starts    []func()
	changes   []func()
}

// NewView is a view over the API server of the config. known reports whether an empty view means
// that there is nothing: it does not while the view has not begun yet. saw is told of each Eviction as it
// changes, lost when a watch finds that the API is not served any more. Both may be nil.
func NewView(config *rest.Config, scheme *runtime.Scheme, inCharge, known func() bool, saw func(*lifecyclev1alpha1.Eviction), lost func()) *View {
	return &View{config: config, scheme: scheme, inCharge: inCharge, known: known, saw: saw, lost: lost}
}

// Run caches the native API until the context ends. It calls ready when every object that there
// is was passed on: only then it is known who else writes. An error means that it could not begin.
func (v *View) Run(ctx context.Context, ready func()) (err error) {
	c, err := cache.New(v.config, cache.Options{Scheme: v.scheme, DefaultWatchErrorHandler: v.watchFailed})
	if err != nil {
		return fmt.Errorf("cache the native API: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := errors.Join(
		c.IndexField(ctx, &lifecyclev1alpha1.EvictionRequest{}, byUID, uidOf),
		c.IndexField(ctx, &lifecyclev1alpha1.Eviction{}, byUID, uidOf),
		c.IndexField(ctx, &lifecyclev1alpha1.Eviction{}, byName, nameOfPod),
	); err != nil {
		return fmt.Errorf("index the native API: %w", err)
	}
	ended := make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		failure = c.Start(ctx)
	}()
	defer func() {
		cancel()
		<-ended
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("cache the native API: %w", failure))
		}
	}()
	seen, err := v.listen(ctx, c)
	if err != nil {
		return err
	}
	syncing, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	if !c.WaitForCacheSync(syncing) || !toolscache.WaitForCacheSync(syncing.Done(), seen...) {
		if ctx.Err() != nil {
			return nil // It ended before it began.
		}
		return errors.New("the first list of the native API has not come within a minute")
	}
	starts := v.set(c)
	defer v.set(nil)
	ready()
	v.Replay() // What the first lists told came before anybody could look.
	for _, start := range starts {
		start()
	}
	<-ctx.Done()
	return nil
}

// watchFailed is no error if the API has gone away: then the view ends.
func (v *View) watchFailed(ctx context.Context, r *toolscache.Reflector, err error) {
	if apierrors.IsNotFound(err) && v.lost != nil {
		v.lost()
		return
	}
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}

// listen passes each change of an object on, and returns whether the first lists were.
func (v *View) listen(ctx context.Context, c cache.Cache) ([]toolscache.InformerSynced, error) {
	eviction := func(e *lifecyclev1alpha1.Eviction) {
		if v.saw != nil {
			v.saw(e)
		}
		v.tell(e)
	}
	request := func(r *lifecyclev1alpha1.EvictionRequest) { v.tell(r) }
	evictions, err := informers.Follow(ctx, c, &lifecyclev1alpha1.Eviction{}, informers.Handlers(eviction, eviction))
	if err != nil {
		return nil, fmt.Errorf("follow the native API: %w", err)
	}
	requests, err := informers.Follow(ctx, c, &lifecyclev1alpha1.EvictionRequest{}, informers.Handlers(request, request))
	if err != nil {
		return nil, fmt.Errorf("follow the native API: %w", err)
	}
	return []toolscache.InformerSynced{evictions, requests}, nil
}

// set begins or ends the view, and returns what starts with it.
func (v *View) set(c cache.Cache) []func() {
	v.mu.Lock()
	v.cache = c
	starts, changes := slices.Clone(v.starts), slices.Clone(v.changes)
	v.mu.Unlock()
	for _, change := range changes {
		change()
	}
	return starts
}

func (v *View) get() cache.Cache {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.cache
}

// Notify has changed called with the namespace and UID of each pod whose native objects change,
// and of each one that has some.
func (v *View) Notify(changed func(types.NamespacedName)) {
	v.mu.Lock()
	v.listeners = append(v.listeners, changed)
	v.mu.Unlock()
	v.Replay()
}

// OnPodChange has changed called with the namespace and name of each pod whose native objects
// change, and of each one that has some when the view begins.
func (v *View) OnPodChange(changed func(types.NamespacedName)) {
	v.mu.Lock()
	v.named = append(v.named, changed)
	v.mu.Unlock()
}

// Replay tells of every pod that has native objects, as if they had changed.
func (v *View) Replay() {
	c := v.get()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	var evictions lifecyclev1alpha1.EvictionList
	var requests lifecyclev1alpha1.EvictionRequestList
	for _, list := range []client.ObjectList{&evictions, &requests} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			log.Log.WithName(controllerName).Error(err, "Could not list what there is of the native API")
		}
	}
	for i := range evictions.Items {
		v.tell(&evictions.Items[i])
	}
	for i := range requests.Items {
		v.tell(&requests.Items[i])
	}
}

// OnChange has change called when Engaged changes.
func (v *View) OnChange(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes = append(v.changes, change)
}

// OnStart has start called each time that the view has begun.
func (v *View) OnStart(start func()) {
	v.mu.Lock()
	v.starts = append(v.starts, start)
	running := v.cache != nil
	v.mu.Unlock()
	if running {
		start()
	}
}

// tell passes on whose object has changed.
func (v *View) tell(o client.Object) {
	v.mu.RLock()
	listeners, named := v.listeners, v.named
	v.mu.RUnlock()
	for _, name := range nameOfPod(o) {
		for _, changed := range named {
			changed(types.NamespacedName{Namespace: o.GetNamespace(), Name: name})
		}
	}
	for _, uid := range uidOf(o) {
		for _, changed := range listeners {
			changed(types.NamespacedName{Namespace: o.GetNamespace(), Name: uid})
		}
	}
}

// Engaged reports whether the view knows the native API.
func (v *View) Engaged() bool { return v.get() != nil }

// Known reports whether it is known what there is natively. It is not while the view has not begun
// yet.
func (v *View) Known() bool { return v.known() }

// InCharge reports whether the controllers of the native API are ours.
func (v *View) InCharge() bool { return v.inCharge() }

// objects are the native objects of a pod. They must not be changed.
type objects struct {
	requests  []*lifecyclev1alpha1.EvictionRequest
	evictions []*lifecyclev1alpha1.Eviction
}

// of finds the native objects of the pod; none if the view is empty.
func (v *View) of(ctx context.Context, pod types.NamespacedName) (objects, error) {
	c, found := v.get(), objects{}
	if c == nil {
		return found, nil
	}
	var requests lifecyclev1alpha1.EvictionRequestList
	if err := c.List(ctx, &requests, client.InNamespace(pod.Namespace), client.MatchingFields{byUID: pod.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return found, fmt.Errorf("list the native EvictionRequests of pod %s: %w", pod.Name, err)
	}
	for i := range requests.Items {
		found.requests = append(found.requests, &requests.Items[i])
	}
	evictions, err := v.EvictionsOf(ctx, pod)
	found.evictions = evictions
	return found, err
}

// EvictionsOf are the Evictions of the pod with that namespace and UID; none if the view is empty.
// They must not be changed.
func (v *View) EvictionsOf(ctx context.Context, pod types.NamespacedName) ([]*lifecyclev1alpha1.Eviction, error) {
	c := v.get()
	if c == nil {
		return nil, nil
	}
	var evictions lifecyclev1alpha1.EvictionList
	if err := c.List(ctx, &evictions, client.InNamespace(pod.Namespace), client.MatchingFields{byUID: pod.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Evictions of pod %s: %w", pod.Name, err)
	}
	var found []*lifecyclev1alpha1.Eviction
	for i := range evictions.Items {
		found = append(found, &evictions.Items[i])
	}
	return found, nil
}

// taken are the names of the Evictions of pods of that name.
func (v *View) taken(ctx context.Context, namespace, pod string) ([]string, error) {
	c := v.get()
	if c == nil {
		return nil, nil
	}
	var evictions lifecyclev1alpha1.EvictionList
	if err := c.List(ctx, &evictions, client.InNamespace(namespace), client.MatchingFields{byName: pod}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Evictions of pods named %s: %w", pod, err)
	}
	var names []string
	for i := range evictions.Items {
		names = append(names, evictions.Items[i].Name)
	}
	return names, nil
}

// uidOf is the UID of the pod that an object is about: its key in the index. Without a target
// there is none, so it is never found.
func uidOf(o client.Object) []string {
	switch o := o.(type) {
	case *lifecyclev1alpha1.EvictionRequest:
		if o.Spec.Target.Pod != nil {
			return []string{string(o.Spec.Target.Pod.UID)}
		}
	case *lifecyclev1alpha1.Eviction:
		if o.Spec.Target.Pod != nil {
			return []string{string(o.Spec.Target.Pod.UID)}
		}
	}
	return nil
}

func nameOfPod(o client.Object) []string {
	switch o := o.(type) {
	case *lifecyclev1alpha1.EvictionRequest:
		if o.Spec.Target.Pod != nil {
			return []string{o.Spec.Target.Pod.Name}
		}
	case *lifecyclev1alpha1.Eviction:
		if o.Spec.Target.Pod != nil {
			return []string{o.Spec.Target.Pod.Name}
		}
	}
	return nil
}
