package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// soon is after how long a request is looked at again that could not be decided.
const soon = 2 * time.Second

// turns is the interceptor: the turn of a pod ends when its budgets have granted it, which
// is recorded before.
type turns struct{ *runner }

var _ interceptor.Interceptor = &turns{}

// Evacuate tells what was decided.
func (t *turns) Evacuate(ctx context.Context, target interceptor.Target) (interceptor.Progress, error) {
	if !t.synced() {
		return interceptor.Progress{Message: "The EvictionBudgets are not known yet.", CheckAfter: soon}, nil
	}
	answer, budgets := t.state.answerOf(target.Request.Namespace, target.RequestUID, target.PodUID)
	if !answer.granted && answer.message == "" && len(budgets) > 0 {
		// Its first message may not be another one soon, so that it is decided at once.
		if err := t.decideNow(ctx, target.Request, budgets[0]); err != nil && !errors.Is(err, errBusy) {
			return interceptor.Progress{Message: "The EvictionBudgets cannot grant anything now: what they have granted cannot be read or written.", CheckAfter: soon}, nil // It is logged and tried again by the controller.
		}
		answer, budgets = t.state.answerOf(target.Request.Namespace, target.RequestUID, target.PodUID)
	}
	switch {
	case answer.granted:
		return interceptor.Progress{Done: true, Message: answer.message}, nil
	case len(budgets) == 0:
		return interceptor.Progress{Done: true, Message: "No EvictionBudget covers the pod."}, nil
	case answer.message == "":
		return interceptor.Progress{Message: "The EvictionBudgets are being asked.", CheckAfter: soon}, nil
	}
	return interceptor.Progress{Message: answer.message, ExpectedFinishTime: answer.until}, nil
}

// decideNow decides about a request that has just got its turn.
func (r *runner) decideNow(ctx context.Context, request types.NamespacedName, budget string) error {
	er := &v1alpha1.EvictionRequest{}
	switch err := r.client.Get(ctx, request, er, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get eviction request %s: %w", request, err)
	}
	r.state.putRequest(er)
	_, err := r.decide(ctx, types.NamespacedName{Namespace: request.Namespace, Name: budget})
	return err
}
