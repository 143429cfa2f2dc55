package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Incarnation finds the pod of that name with that UID, nil if it does not exist, and the UID of
// the pod that has the name, "" if there is none. A cache may lag in both directions, so it is
// trusted only if it has this pod: the last reader, which must be live, decides about absence. The
// pod may be shared with the cache and must not be changed. An error is never a verdict.
func Incarnation(ctx context.Context, key types.NamespacedName, uid types.UID, readers ...client.Reader) (pod *corev1.Pod, found types.UID, err error) {
	for _, reader := range readers {
		pod, found = &corev1.Pod{}, ""
		switch err := reader.Get(ctx, key, pod, client.UnsafeDisableDeepCopy); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, "", fmt.Errorf("get pod %s: %w", key, err)
		case pod.UID == uid:
			return pod, uid, nil
		}
		found = pod.UID
	}
	return nil, found, nil
}
