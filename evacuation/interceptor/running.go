package interceptor

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// errTurnOver is the cause if the context of an Evacuate ends early.
var errTurnOver = errors.New("the turn is over")

// running has the requests in work, so that the end of a turn can stop a call.
type running struct {
	mu sync.Mutex
	of map[types.NamespacedName]*oneRun
}

// oneRun is one reconciliation.
type oneRun struct {
	request types.UID
	stop    context.CancelCauseFunc
}

// begin notes that work on a request begins and returns the context for work that must
// end with the turn. It is called before the request is read: an end that is seen later
// stops the context, one that was seen before is in what is read.
func (r *running) begin(ctx context.Context, key types.NamespacedName) (turn context.Context, end func()) {
	turn, stop := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[types.NamespacedName]*oneRun{}
	}
	r.of[key] = &oneRun{stop: stop}
	return turn, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.of, key) // Only one worker has a key at a time.
		stop(nil)
	}
}

// isFor says which request's turn the context is for, once known.
func (r *running) isFor(key types.NamespacedName, request types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.of[key]; run != nil {
		run.request = request
	}
}

// over stops the work for this request.
func (r *running) over(key types.NamespacedName, request types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.of[key]; run != nil && (run.request == "" || run.request == request) {
		run.stop(errTurnOver)
	}
}
