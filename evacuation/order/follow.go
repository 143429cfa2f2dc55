package order

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// follower remembers which requests wait on which node, so that events of other nodes wake
// nobody. It is only a hint: a new manager calls Evacuate for every active request at once, and
// every request is called again before its heartbeat. The zero value is ready.
type follower struct {
	mu sync.Mutex
	of map[string]map[types.NamespacedName]bool
}

// follow remembers that a request waits on a node.
func (f *follower) follow(node string, request types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]map[types.NamespacedName]bool{}
	}
	if f.of[node] == nil {
		f.of[node] = map[types.NamespacedName]bool{}
	}
	f.of[node][request] = true
}

// forget forgets a request.
func (f *follower) forget(node string, request types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of[node], request)
	if len(f.of[node]) == 0 {
		delete(f.of, node)
	}
}

// has reports whether a request waits on a node.
func (f *follower) has(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.of[node]) > 0
}

// on are the requests that wait on a node.
func (f *follower) on(node string) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.of[node]))
}

// waiting maps an event of a pod, a request or a node to the requests that wait on that node.
// Those whose turn is over are forgotten.
func (o *Order) waiting(ctx context.Context, obj client.Object) []types.NamespacedName {
	var node string
	switch object := obj.(type) {
	case *corev1.Pod:
		node = object.Spec.NodeName
	case *v1alpha1.EvictionRequest:
		node = object.Status.NodeName
	case *corev1.Node:
		node = object.Name
	}
	return slices.DeleteFunc(o.following.on(node), func(key types.NamespacedName) bool {
		request := &v1alpha1.EvictionRequest{}
		err := o.Client.Get(ctx, key, request, client.UnsafeDisableDeepCopy)
		over := apierrors.IsNotFound(err) || err == nil && !hasTurn(request)
		if over {
			o.following.forget(node, key)
		}
		return over
	})
}

// podEvents passes what may end a wait: a pod is gone, has ended, or has other labels. There are
// many of these events, and nearly always nobody waits.
func (o *Order) podEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc: func(e event.DeleteEvent) bool {
			pod, ok := e.Object.(*corev1.Pod)
			return ok && o.following.has(pod.Spec.NodeName)
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Pod)
			after, is := e.ObjectNew.(*corev1.Pod)
			return ok && is && o.following.has(after.Spec.NodeName) && (before.UID != after.UID || pods.HasEnded(before) != pods.HasEnded(after) || !maps.Equal(before.Labels, after.Labels))
		},
	}
}

// requestEvents passes what may end a wait: nobody wants a pod to leave any more. And it passes
// that a turn has ended, so that the request is forgotten.
func requestEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1alpha1.EvictionRequest)
			after, is := e.ObjectNew.(*v1alpha1.EvictionRequest)
			return ok && is && (wanted(before) && !wanted(after) || hasTurn(before) && !hasTurn(after))
		},
	}
}

// nodeEvents passes what may end a wait: nobody drains a node any more.
func nodeEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Node)
			after, is := e.ObjectNew.(*corev1.Node)
			return ok && is && len(translate.NodeMarkers(before)) > 0 && len(translate.NodeMarkers(after)) == 0
		},
	}
}
