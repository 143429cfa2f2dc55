package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// podKind is served by the manager's own informer.
var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// kindError says why the objects of a kind are not available.
type kindError struct {
	reason string
	err    error
}

func (p *kindError) Error() string { return p.err.Error() }

func (p *kindError) Unwrap() error { return p.err }

// kinds holds one informer per kind, which keeps only the fields that the
// policies read. Kinds come and go while we run.
type kinds struct {
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
	// access creates SelfSubjectAccessReviews.
	access client.Writer
	// writes tracks the writes that are refused.
	writes *refused.Tracker
	log    logr.Logger
	// changed is called with every object that changed, from the informers.
	changed func(schema.GroupVersionKind, *unstructured.Unstructured)
	// synced is called when the objects of a kind are known.
	synced func()
	// troubled is called, from the informers, when a kind has disappeared.
	troubled func()

	mu sync.RWMutex
	of map[schema.GroupVersionKind]*kind
	// next replaces those in of when it has synced: a policy that needs more fields
	// must not block the others.
	next map[schema.GroupVersionKind]*kind
}

// need is a kind with the fields that a policy reads.
type need struct {
	kind   schema.GroupVersionKind
	fields tree
	// text is fields as text.
	text string
}

// kind is one kind with its informer.
type kind struct {
	fields   tree
	informer toolscache.SharedIndexInformer
	resource dynamic.NamespaceableResourceInterface
	stop     context.CancelFunc

	mu sync.Mutex
	// gone is why the informer no longer works.
	gone error
	// has remembers which needs the fields meet.
	has map[string]bool
	// written are objects as we last wrote them, until the informer has caught up.
	written map[types.NamespacedName]*unstructured.Unstructured
}

// ensure starts and stops informers, so that there is one for every wanted kind, with
// these fields. It returns the problems, by kind. ctx is that of the process: the
// informers end with it.
func (k *kinds) ensure(ctx context.Context, wanted map[schema.GroupVersionKind]tree) map[schema.GroupVersionKind]*kindError {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kinds := range []map[schema.GroupVersionKind]*kind{k.of, k.next} {
		for gvk, running := range kinds {
			if _, ok := wanted[gvk]; !ok || running.lost() != nil {
				running.stop()
				delete(kinds, gvk)
			}
		}
	}
	problems := map[schema.GroupVersionKind]*kindError{}
	for gvk, fields := range wanted {
		if gvk == podKind {
			continue
		}
		wants := need{gvk, fields, fields.String()}
		current, next := k.of[gvk], k.next[gvk]
		if (current != nil && current.meets(wants)) || (next != nil && next.meets(wants)) {
			continue
		}
		started, err := k.start(ctx, gvk, fields)
		switch {
		case err != nil:
			problems[gvk] = err
		case current == nil:
			k.of[gvk] = started
		default:
			if next != nil {
				next.stop()
			}
			k.next[gvk] = started
		}
	}
	return problems
}

// start starts an informer, if the kind is installed and we may read it.
func (k *kinds) start(ctx context.Context, gvk schema.GroupVersionKind, fields tree) (*kind, *kindError) {
	mapping, err := k.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, notInstalled(gvk, err)
	}
	if problem := k.allowed(ctx, gvk, "", "list", "watch", "get"); problem != nil {
		return nil, problem
	}
	running, stop := context.WithCancel(ctx)
	informer := dynamicinformer.NewFilteredDynamicInformer(k.dynamic, mapping.Resource, metav1.NamespaceAll, 0,
		toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}, nil).Informer()
	started := &kind{
		fields: fields, informer: informer, resource: k.dynamic.Resource(mapping.Resource), stop: stop,
		written: map[types.NamespacedName]*unstructured.Unstructured{}, has: map[string]bool{},
	}
	tell := func(obj any) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if u, ok := obj.(*unstructured.Unstructured); ok {
			started.settle(u)
			k.changed(gvk, u)
		}
	}
	_, handlerErr := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: tell, DeleteFunc: tell,
		UpdateFunc: func(before, after any) {
			if b, ok := before.(*unstructured.Unstructured); ok {
				if a, ok := after.(*unstructured.Unstructured); ok && sameFields(b, a) {
					started.settle(a)
					return
				}
			}
			tell(after)
		},
	})
	err = errors.Join(
		informer.SetTransform(transform(fields)),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
			k.failed(gvk, started, err)
		}),
		handlerErr,
	)
	if err != nil {
		stop()
		return nil, &kindError{v1alpha1.ReasonNotSynced, fmt.Errorf("watch %s: %w", gvk.Kind, err)}
	}
	go informer.RunWithContext(running)
	go func() {
		if toolscache.WaitForCacheSync(running.Done(), informer.HasSynced) {
			k.replace(gvk, started)
			k.synced()
		}
	}()
	return started, nil
}

// replace replaces a kind by a synced one.
func (k *kinds) replace(gvk schema.GroupVersionKind, by *kind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next[gvk] != by {
		return
	}
	delete(k.next, gvk)
	if before := k.of[gvk]; before != nil {
		before.stop()
	}
	k.of[gvk] = by
}

// meets reports whether all needed fields are kept.
func (k *kind) meets(n need) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.has[n.text]
	if !ok {
		known = merge(k.fields, n.fields).String() == k.fields.String()
		k.has[n.text] = known
	}
	return known
}

func notInstalled(gvk schema.GroupVersionKind, err error) *kindError {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return &kindError{v1alpha1.ReasonKindNotInstalled, fmt.Errorf("%s of %s is not installed", gvk.Kind, gvk.GroupVersion())}
	}
	return &kindError{v1alpha1.ReasonNotSynced, fmt.Errorf("find %s of %s: %w", gvk.Kind, gvk.GroupVersion(), err)}
}

// failed notes that a kind was uninstalled, or that we may no longer read it. The
// informer recovers from everything else.
func (k *kinds) failed(gvk schema.GroupVersionKind, running *kind, err error) {
	k.log.V(1).Info("Watching a kind failed", "kind", gvk.String(), "reason", err.Error())
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
		return
	}
	running.mu.Lock()
	running.gone = err
	running.mu.Unlock()
	k.troubled()
}

func (k *kind) lost() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone
}

// transform keeps some fields of an object.
func transform(fields tree) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		return &unstructured.Unstructured{Object: prune(u.Object, fields)}, nil
	}
}

// allowed asks whether we may use verbs on a kind.
func (k *kinds) allowed(ctx context.Context, gvk schema.GroupVersionKind, subresource string, verbs ...string) *kindError {
	mapping, err := k.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return notInstalled(gvk, err)
	}
	for _, verb := range verbs {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: mapping.Resource.Group, Version: mapping.Resource.Version, Resource: mapping.Resource.Resource,
				Subresource: subresource, Verb: verb,
			},
		}}
		if err := k.access.Create(ctx, review); err != nil {
			return &kindError{v1alpha1.ReasonNotSynced, fmt.Errorf("ask for the permission to %s %s: %w", verb, mapping.Resource.Resource, err)}
		}
		if !review.Status.Allowed {
			resource := mapping.Resource.Resource
			if subresource != "" {
				resource += "/" + subresource
			}
			return &kindError{v1alpha1.ReasonForbidden, fmt.Errorf("Drawbridge may not %s %s in API group %q", verb, resource, mapping.Resource.Group)} //nolint:staticcheck // It begins with a name.
		}
	}
	return nil
}

// ready returns a kind whose objects are known.
func (k *kinds) ready(n need) (*kind, error) {
	k.mu.RLock()
	found := k.of[n.kind]
	k.mu.RUnlock()
	switch {
	case found == nil:
		return nil, fmt.Errorf("objects of kind %s cannot be read", n.kind.Kind)
	case found.lost() != nil:
		return nil, fmt.Errorf("objects of kind %s cannot be read any more: %w", n.kind.Kind, found.lost())
	case !found.informer.HasSynced() || !found.meets(n):
		return nil, fmt.Errorf("objects of kind %s are still being read", n.kind.Kind)
	default:
		return found, nil
	}
}

// retryKinds is the delay before retrying a kind that is not available.
const retryKinds = 30 * time.Second

// sameFields reports whether the kept fields of two versions of an object are the same:
// most writes of platforms change none of them.
func sameFields(a, b *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(versionless(a), versionless(b))
}

func versionless(u *unstructured.Unstructured) map[string]any {
	object := maps.Clone(u.Object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		object["metadata"] = metadata
	}
	return object
}
