package maintenance_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// live is what the API server says, which knows more than the cache. It counts the lists and the
// reads of pods.
type live struct{ *world }

func (l live) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := l.world.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		l.liveReads++
		*pod = *l.pods[key].(*corev1.Pod)
	}
	return nil
}

func (l live) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l.liveLists++
	if err := l.world.List(ctx, list, opts...); err != nil {
		return err
	}
	if pods, ok := list.(*corev1.PodList); ok {
		for i := range pods.Items {
			// One that the cache does not show is as it was listed.
			if pod, ok := l.pods[client.ObjectKeyFromObject(&pods.Items[i])].(*corev1.Pod); ok {
				pods.Items[i] = *pod
			}
		}
		for _, pod := range l.hidden {
			pods.Items = append(pods.Items, *pod)
		}
	}
	return nil
}

// evict evicts a pod as the API server does.
func (w *world) evict(_ context.Context, key types.NamespacedName, uid types.UID) error {
	w.writes["evict"]++
	if w.calling != nil {
		w.calling()
	}
	pod := w.pods[key]
	switch {
	case pod == nil || pod.GetUID() != uid:
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	case w.refusal != nil:
		return w.refusal
	}
	w.remove(pod)
	return nil
}
