package interceptor

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// mustSave reports whether a requester does not wait, and the interceptor waits for a turn
// that it will hardly get.
func (r *reconciler) mustSave(er *v1alpha1.EvictionRequest) bool {
	if r.Save == nil || er.Spec.Target.Pod == nil || er.DeletionTimestamp != nil || v1alpha1.IsFinished(er) ||
		er.Status.Deadline == nil || slices.Contains(er.Status.ProcessedInterceptors, r.Name) {
		return false
	}
	hard := func(q v1alpha1.Requester) bool { return q.Type == v1alpha1.RequesterHard }
	planned := func(i v1alpha1.Interceptor) bool { return i.Name == r.Name }
	return slices.ContainsFunc(er.Spec.Requesters, hard) && slices.ContainsFunc(er.Status.TargetInterceptors, planned) && r.Selector.Matches(labelSet(er))
}

// save calls Options.Save, until it succeeds once.
func (r *reconciler) save(ctx context.Context, er *v1alpha1.EvictionRequest, state turnState) (err error) {
	if state.Saved {
		return nil
	}
	state.Target, state.Saved = r.target(er, state), true
	timeout := r.Timeout
	if left := state.Target.Deadline.Sub(r.Clock.Now()); left > 0 {
		timeout = min(timeout, left)
	}
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	func() {
		defer catch(call, &err)
		err = r.Save(call, state.Target)
	}()
	switch {
	case stopping(ctx):
		return nil
	case err != nil:
		r.emit(state.Target, events.EvacuationFailed(r.Name, state.Target.Pod.Name, err))
		return fmt.Errorf("save what can be saved of pod %s: %w", state.Target.Pod, err)
	}
	r.states.set(client.ObjectKeyFromObject(er), state)
	return nil
}
