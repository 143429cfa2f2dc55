package order

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// errNotSeen: the cache is behind. It ends by itself, soon.
var errNotSeen = errors.New("the cache does not show the pod or its namespace yet")

// gather reads the input of a decision about a pod from the cache. Drained says whether its
// node is.
func (o *Order) gather(ctx context.Context, t interceptor.Target, drained bool) (*Input, error) {
	there := &corev1.PodList{}
	if err := o.Client.List(ctx, there, client.MatchingFields{index.PodsByNode: t.NodeName}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", t.NodeName, err)
	}
	in := &Input{Now: o.Clock.Now(), Since: t.ActivatedAt, Node: t.NodeName}
	if in.Since.IsZero() {
		in.Since = t.StartedAt
	}
	if in.Since.IsZero() {
		in.Since = in.Now
	}
	for i := range there.Items {
		object := &there.Items[i]
		self := object.UID == t.PodUID
		if !self && (pods.HasEnded(object) || pods.StaysOnNode(object)) {
			continue
		}
		request, err := o.requestOf(ctx, object)
		if err != nil {
			return nil, err
		}
		if !self && !drained && object.DeletionTimestamp.IsZero() && !wanted(request) {
			continue
		}
		one, err := o.podOf(ctx, object, request)
		if err != nil {
			return nil, err
		}
		if self {
			in.Self = one
			continue
		}
		in.Others = append(in.Others, one)
	}
	if in.Self.uid == "" {
		return nil, errNotSeen
	}
	return in, nil
}

// podOf reads what a decision sees of a pod.
func (o *Order) podOf(ctx context.Context, object *corev1.Pod, request *v1alpha1.EvictionRequest) (Pod, error) {
	namespace := &corev1.Namespace{}
	switch err := o.Client.Get(ctx, types.NamespacedName{Name: object.Namespace}, namespace, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return Pod{}, errNotSeen
	case err != nil:
		return Pod{}, fmt.Errorf("get namespace %s: %w", object.Namespace, err)
	}
	return PodOf(object, namespace.Labels, request, o.Registry)
}

// requestOf returns the EvictionRequest of a pod, nil if there is none. It is shared with the
// cache.
func (o *Order) requestOf(ctx context.Context, object *corev1.Pod) (*v1alpha1.EvictionRequest, error) {
	request := &v1alpha1.EvictionRequest{}
	switch err := o.Client.Get(ctx, v1alpha1.RequestKey(object), request, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // Most pods have none.
	case err != nil:
		return nil, fmt.Errorf("get the eviction request of pod %s/%s: %w", object.Namespace, object.Name, err)
	}
	return request, nil
}

// wanted reports whether a request, which may be nil, is about to evict its pod.
func wanted(request *v1alpha1.EvictionRequest) bool {
	return request != nil && request.DeletionTimestamp.IsZero() &&
		!v1alpha1.IsFinished(request) && !v1alpha1.IsUnwanted(request) && !v1alpha1.IsTrial(request)
}

// mayWait reports whether a pod with this request, which may be nil, has, had or may get a turn
// of the order: a plan that was made without it stays without it.
func mayWait(request *v1alpha1.EvictionRequest) bool {
	return !wanted(request) || len(request.Status.TargetInterceptors) == 0 ||
		slices.ContainsFunc(request.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name == Name })
}

// hasTurn reports whether it is the turn of the order.
func hasTurn(request *v1alpha1.EvictionRequest) bool {
	return slices.Contains(request.Status.ActiveInterceptors, Name) && !v1alpha1.IsFinished(request)
}

// isDrained reports whether a node shows that somebody drains it. It is not for one that does
// not exist.
func (o *Order) isDrained(ctx context.Context, reader client.Reader, name string) (bool, error) {
	node := &corev1.Node{}
	switch err := reader.Get(ctx, types.NamespacedName{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get node %s: %w", name, err)
	}
	return len(translate.NodeMarkers(node)) > 0, nil
}

// notYet reports whether an error says only that the caches are behind.
func notYet(err error) bool {
	return errors.Is(err, errNotSeen) || errors.Is(err, registration.ErrNotSynced) || errors.Is(err, registration.ErrNamespaceUnknown)
}
