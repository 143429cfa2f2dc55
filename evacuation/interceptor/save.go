package interceptor

import (
	"context"
	"fmt"

	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// save calls Options.Save, until it succeeds once.
func (r *reconciler) save(ctx context.Context, q *request, state turnState) (err error) {
	if state.Saved {
		return nil
	}
	state.Target, state.Saved = r.target(q, state), true
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
	r.states.set(q.Key, state)
	return nil
}
