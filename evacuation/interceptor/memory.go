package interceptor

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// memory is what this process knows about a request and the object does not say, or not
// yet, or no longer. A restart may lose it: see Canceler.
type memory struct {
	// Target is the one Evacuate or Cancel was last called with.
	Target Target
	// Item is the last report that was accepted. The cache may be behind it.
	Item item
	// NoReturn: the interceptor is past the point of no return.
	NoReturn bool
	// PodGone: the pod has ended, which is not handled yet.
	PodGone bool
	// Settled: nothing is left to do for this request.
	Settled bool
}

// memories keeps memories by request. A request's name identifies its pod: a new
// request for the same pod has the same name and another UID.
type memories struct {
	mu sync.Mutex
	of map[types.NamespacedName]memory
}

// get returns a memory; without one its Target has no RequestUID.
func (m *memories) get(key types.NamespacedName) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[key]
}

func (m *memories) set(key types.NamespacedName, to memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[types.NamespacedName]memory{}
	}
	m.of[key] = to
}

// podGone notes that the pod of a request has ended.
func (m *memories) podGone(key types.NamespacedName, request types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if memory, ok := m.of[key]; ok && memory.Target.RequestUID == request {
		memory.PodGone = true
		m.of[key] = memory
	}
}

func (m *memories) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}

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
