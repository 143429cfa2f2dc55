// Package waitfor watches single objects of any kind, for followers that want to know
// whenever one changes.
package waitfor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// firstList limits how long Get waits for the first list.
const firstList = 30 * time.Second

// errEnded is the error after Run.
var errEnded = errors.New("the watches have ended")

// Ref names an object.
type Ref struct{ APIVersion, Kind, Namespace, Name string }

func (r Ref) String() string { return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name) }

// Watches has one informer for each object that somebody follows. It may be used by
// several goroutines.
type Watches struct {
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
	log     logr.Logger
	grant   string

	mu    sync.Mutex
	of    map[Ref]*object
	ended bool
	// running are the informers.
	running sync.WaitGroup
}

// New returns Watches without any. Grant says, for people, where to grant what they need.
func New(client dynamic.Interface, mapper meta.RESTMapper, log logr.Logger, grant string) *Watches {
	return &Watches{dynamic: client, mapper: mapper, log: log, grant: grant, of: map[Ref]*object{}}
}

// Run waits for the end of ctx, ends all watches, and returns when the last has ended. It
// runs once, as long as the process is the leader. Get works before Run, and fails after.
func (w *Watches) Run(ctx context.Context) error {
	<-ctx.Done()
	w.mu.Lock()
	w.ended = true
	for ref, o := range w.of {
		w.forget(ref, o, errEnded)
	}
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

// Get returns an object, nil if it does not exist, from now on from memory. It must not
// be changed, and has no managedFields. Until Release, changed is called on every later
// change, and when the object can no longer be watched, in which case the next Get says
// why. changed may be called too often, and must not block. A follower that calls
// again replaces its changed; it may follow several objects.
//
// The errors for people are *UnknownKindError, *RefusedError (kinds without a namespace,
// and Secrets) and *ForbiddenError. After an error, too, Release the follower.
func (w *Watches) Get(ctx context.Context, ref Ref, follower string, changed func()) (map[string]any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fmt.Errorf("no answer within %s", firstList))
	defer cancel()
	resource, err := w.resource(ref)
	if err != nil {
		return nil, err
	}
	o, err := w.join(ref, follower, changed)
	if err != nil {
		return nil, err
	}
	if o == nil {
		if err := w.probe(ctx, ref, resource); err != nil {
			return nil, err
		}
		if o, err = w.begin(ref, resource, follower, changed); err != nil {
			return nil, err
		}
	}
	select {
	case <-o.synced():
	case <-o.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("watch %s: %w", ref, context.Cause(ctx))
	}
	if err := o.why(); err != nil {
		return nil, fmt.Errorf("watch %s: %w", ref, err)
	}
	return o.get(ref)
}

// Release ends what a follower follows. When the last follower of an object leaves, its
// informer ends.
func (w *Watches) Release(follower string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ref, o := range w.of {
		if o.leave(follower) == 0 {
			w.forget(ref, o, errors.New("nobody follows it any more"))
		}
	}
}

// resource finds the resource of a kind that may be watched.
func (w *Watches) resource(ref Ref) (schema.GroupVersionResource, error) {
	if ref.Name == "" || ref.Namespace == "" {
		return schema.GroupVersionResource{}, &RefusedError{ref, "the object has no name or no namespace"}
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, &RefusedError{ref, "the apiVersion is malformed"}
	}
	gvk := gv.WithKind(ref.Kind)
	mapping, err := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return schema.GroupVersionResource{}, &UnknownKindError{ref, err}
	case err != nil:
		return schema.GroupVersionResource{}, fmt.Errorf("find %s of %s: %w", ref.Kind, ref.APIVersion, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return schema.GroupVersionResource{}, &RefusedError{ref, "its objects are in no namespace"}
	case mapping.Resource.Group == "" && mapping.Resource.Resource == "secrets":
		return schema.GroupVersionResource{}, &RefusedError{ref, "Secrets are not read"}
	}
	return mapping.Resource, nil
}

// probe lists and watches once: an informer would retry in silence what is forbidden.
func (w *Watches) probe(ctx context.Context, ref Ref, resource schema.GroupVersionResource) error {
	objects := w.dynamic.Resource(resource).Namespace(ref.Namespace)
	list, err := objects.List(ctx, metav1.ListOptions{FieldSelector: selector(ref), Limit: 1})
	if err != nil {
		return w.unreadable(ref, resource, fmt.Errorf("list %s: %w", ref, err))
	}
	watch, err := objects.Watch(ctx, metav1.ListOptions{FieldSelector: selector(ref), ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return w.unreadable(ref, resource, fmt.Errorf("watch %s: %w", ref, err))
	}
	watch.Stop()
	return nil
}

// unreadable says what an error of the API server means. Others are returned as they are.
func (w *Watches) unreadable(ref Ref, resource schema.GroupVersionResource, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return &ForbiddenError{ref, resource, w.grant, err}
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return &UnknownKindError{ref, err}
	default:
		return err
	}
}

// selector selects the object alone. A role with resourceNames suffices for it.
func selector(ref Ref) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String()
}
