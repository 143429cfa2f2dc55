package requester

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	clientinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// A loop that calls Join whenever the request changes must not spin: the
// controller would refuse the same pod again, and again.
func TestJoinLeavesARefusedRequestAsItIs(t *testing.T) {
	refusedFor := func(pod string) *v1alpha1.EvictionRequest {
		er := with(wanted(us), v1alpha1.ConditionCanceled, v1alpha1.ReasonValidationFailed)
		er.Spec.Target.Pod.Name = pod
		return er
	}
	for pod, deleted := range map[string]int{"web": 0, "webb": 1} {
		deletions := 0
		r, _ := requesterOn(t, clientinterceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				deletions++
				return c.Delete(ctx, obj, opts...)
			},
		}, webPod("u1"), refusedFor(pod))
		er, err := r.Join(t.Context(), webPod("u1"))
		if err != nil || deletions != deleted {
			t.Errorf("refused for %s: error %v, %d deletions, want %d", pod, err, deletions, deleted)
			continue
		}
		if refused := Observe(er).State == v1alpha1.StateCanceled; refused != (deleted == 0) {
			t.Errorf("refused for %s: returned %+v", pod, Observe(er))
		}
	}
}
