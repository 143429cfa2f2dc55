package hook

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// isHooksTest reports whether one of the requesters only tries the hook (kubectl drawbridge
// hooks test).
func isHooksTest(t interceptor.Target) bool {
	return slices.Contains(t.Requesters, v1alpha1.HookTestRequester)
}

// endHooksTest removes the requester that only tries the hook. Before that, the hook does not
// hand over: without other requesters the pod would be evicted.
func (a *hookInterceptor) endHooksTest(ctx context.Context, t interceptor.Target) error {
	er := &v1alpha1.EvictionRequest{}
	switch err := a.live.Get(ctx, t.Request, er); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get eviction request %s: %w", t.Request, err)
	case er.UID != t.RequestUID:
		return nil
	}
	without := er.DeepCopy()
	without.Spec.Requesters = slices.DeleteFunc(without.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == v1alpha1.HookTestRequester })
	if len(without.Spec.Requesters) == len(er.Spec.Requesters) {
		return nil
	}
	err := a.client.Patch(ctx, without, client.MergeFromWithOptions(er, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("end the trial in eviction request %s: %w", t.Request, err)
	}
	return nil
}
