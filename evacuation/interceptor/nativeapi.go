package interceptor

import (
	"context"
	"fmt"
	"sync"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/lifecycle/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// native is the dialect of Kubernetes (lifecycle.k8s.io), for the responder of that key. A
// pod has one Eviction after the other, under names that say nothing, so it keeps a list of
// those that name the responder.
type native struct {
	key string
	// indexed: note is called for all objects of the cache.
	indexed bool

	mu sync.Mutex
	of map[types.NamespacedName]map[types.NamespacedName]struct{} // Evictions by pod.

	forbidden sync.Once
}

var _ dialect = &native{}

// PodEvictions may be implemented by the client of NewReconciler. Then the native Evictions of a
// pod, which is given by its namespace and UID, are those that it finds. They are not changed.
type PodEvictions interface {
	EvictionsOf(ctx context.Context, pod types.NamespacedName) ([]*lifecyclev1alpha1.Eviction, error)
}

func (*native) kind() schema.GroupVersionKind {
	return lifecyclev1alpha1.SchemeGroupVersion.WithKind("Eviction")
}

func (n *native) decode(obj client.Object) *request {
	ev, ok := obj.(*lifecyclev1alpha1.Eviction)
	if !ok {
		return nil
	}
	return decodeNative(ev, n.key)
}

func (n *native) note(obj client.Object, exists bool) {
	ev, ok := obj.(*lifecyclev1alpha1.Eviction)
	if !ok || ev.Spec.Target.Pod == nil {
		return
	}
	pod, name := types.NamespacedName{Namespace: ev.Namespace, Name: string(ev.Spec.Target.Pod.UID)}, client.ObjectKeyFromObject(ev)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !exists:
		delete(n.of[pod], name)
		if len(n.of[pod]) == 0 {
			delete(n.of, pod)
		}
	case stateOf(ev, n.key) != "":
		if n.of == nil {
			n.of = map[types.NamespacedName]map[types.NamespacedName]struct{}{}
		}
		if n.of[pod] == nil {
			n.of[pod] = map[types.NamespacedName]struct{}{}
		}
		n.of[pod][name] = struct{}{}
	}
}

// reset forgets what the cache has had.
func (n *native) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of = nil
}

func (n *native) find(ctx context.Context, cached client.Reader, pod types.NamespacedName) (*request, error) {
	var found []*request
	if known, ok := cached.(PodEvictions); ok {
		evictions, err := known.EvictionsOf(ctx, pod)
		for _, e := range evictions {
			found = append(found, decodeNative(e, n.key))
		}
		return choose(found), err
	}
	if !n.indexed {
		list := &lifecyclev1alpha1.EvictionList{}
		if err := cached.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
			return nil, fmt.Errorf("list the evictions of namespace %s: %w", pod.Namespace, err)
		}
		for i := range list.Items {
			if q := decodeNative(&list.Items[i], n.key); q.Key == pod {
				found = append(found, q)
			}
		}
		return choose(found), nil
	}
	for _, name := range n.names(pod) {
		q, err := n.get(ctx, cached, name)
		if err != nil {
			return nil, err
		}
		if q != nil && q.Key == pod { // Another one may have the name by now.
			found = append(found, q)
		}
	}
	return choose(found), nil
}

func (n *native) names(pod types.NamespacedName) []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	var names []types.NamespacedName
	for name := range n.of[pod] {
		names = append(names, name)
	}
	return names
}

func (n *native) get(ctx context.Context, reader client.Reader, name types.NamespacedName) (*request, error) {
	ev := &lifecyclev1alpha1.Eviction{}
	switch err := reader.Get(ctx, name, ev); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get eviction %s: %w", name, err)
	default:
		return decodeNative(ev, n.key), nil
	}
}

// write leaves out the startTime, which is the controller's.
func (n *native) write(ctx context.Context, c client.Client, owner string, to *request, item item) error {
	report := apply.ResponderStatus().WithName(n.key)
	if item.Message != "" {
		report.WithMessage(item.Message)
	}
	if !item.HeartbeatAt.IsZero() {
		report.WithHeartbeatTime(metav1.NewTime(item.HeartbeatAt))
	}
	if !item.ExpectedFinishAt.IsZero() {
		report.WithExpectedCompletionTime(metav1.NewTime(item.ExpectedFinishAt))
	}
	if !item.CompletedAt.IsZero() {
		report.WithCompletionTime(metav1.NewTime(item.CompletedAt))
	}
	return c.SubResource("status").Apply(ctx,
		apply.Eviction(to.Target.Request.Name, to.Target.Request.Namespace).
			WithUID(to.Target.RequestUID).
			WithResourceVersion(to.Version).
			WithStatus(apply.EvictionStatus().WithResponders(report)),
		client.FieldOwner(owner), client.ForceOwnership)
}

// describe adds the node and labels of the pod, which an Eviction does not have, once in a
// turn. They stay empty for a pod that is gone, and for an account that may not read pods.
func (r *reconciler) describe(ctx context.Context, q *request, state turnState) error {
	if state.Target.RequestUID == q.Target.RequestUID {
		q.Target.NodeName, q.Target.Labels = state.Target.NodeName, state.Target.Labels
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	pod := &unstructured.Unstructured{} // The scheme need not have pods.
	pod.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	err := r.live.Get(ctx, q.Target.Pod, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err) && r.Selector.Empty():
		if n, ok := r.api.(*native); ok {
			n.forbidden.Do(func() {
				log.FromContext(ctx).Info("Targets have no node and labels, because pods cannot be read", "reason", err.Error())
			})
		}
		return nil
	case err != nil:
		return fmt.Errorf("get pod %s: %w", q.Target.Pod, err)
	case pod.GetUID() == q.Target.PodUID:
		q.Target.Labels = pod.GetLabels()
		q.Target.NodeName, _, _ = unstructured.NestedString(pod.Object, "spec", "nodeName")
	}
	return nil
}
