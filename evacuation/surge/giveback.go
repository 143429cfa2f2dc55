package surge

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// Returned is what happened to a handed-up pod.
type Returned int

// What happens to a handed-up pod when Drawbridge is removed.
const (
	// ReturnedNothing: the pod was not handed up, has ended, or is deleted with its owner.
	ReturnedNothing Returned = iota + 1
	// ReturnedBack: its ReplicaSet has it again.
	ReturnedBack
	// ReturnedEvicted: its ReplicaSet is no longer the current one, and it was evicted.
	ReturnedEvicted
	// ReturnedLater: it is not known yet; try again.
	ReturnedLater
)

// GiveBack gives one pod back to the ReplicaSet it was taken from, permanently, without a
// running manager. A pod that cannot be given back is evicted, if its budgets allow that.
// c must read from the API server.
//
// Error: the API server's, including that of a budget that refuses the eviction
// (apierrors.IsTooManyRequests). Calling again is safe.
func GiveBack(ctx context.Context, c client.Client, key types.NamespacedName) (Returned, error) {
	for range tries {
		in := &input{live: true, pod: &corev1.Pod{}}
		if err := c.Get(ctx, key, in.pod); apierrors.IsNotFound(err) {
			return ReturnedNothing, nil
		} else if err != nil {
			return 0, fmt.Errorf("get pod %s: %w", key, err)
		}
		if err := gatherOwners(ctx, c, in); err != nil {
			return 0, err
		}
		switch returnStep(in) {
		case back:
			rec, _ := handedUp(in.pod)
			patch, err := giveBackPatch(in.pod, rec, nil)
			if err != nil {
				return 0, err
			}
			if err = c.Patch(ctx, in.pod, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(Name)); refused.Changed(err) {
				continue
			} else if err != nil {
				return 0, fmt.Errorf("give back pod %s: %w", key, err)
			}
			return ReturnedBack, nil
		case evict:
			err := c.SubResource("eviction").Create(ctx, in.pod, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &in.pod.UID}},
			})
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return ReturnedNothing, nil
			} else if err != nil {
				return 0, fmt.Errorf("evict pod %s, which no ReplicaSet takes back: %w", key, err)
			}
			return ReturnedEvicted, nil
		case later:
			return ReturnedLater, nil
		default:
			return ReturnedNothing, nil
		}
	}
	return 0, fmt.Errorf("give back pod %s: %w", key, errChanging)
}
