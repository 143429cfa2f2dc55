package interceptor

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// turnState is what this process knows about a request and the object does not say, or not
// yet, or no longer. A restart may lose it: see Canceler.
type turnState struct {
	// Target is the one Evacuate or Cancel was last called with.
	Target Target
	// Item is the last report that was accepted. The cache may be behind it.
	Item item
	// NoReturn: the interceptor is past the point of no return.
	NoReturn bool
	// PodGone: the pod has ended, which is not handled yet.
	PodGone bool
	// Saved: Options.Save was called before the turn, and nothing else.
	Saved bool
	// Settled: nothing is left to do for this request.
	Settled bool
}

// turnStates keeps the states by pod: its namespace and UID. A new request for the same pod
// has another UID.
type turnStates struct {
	mu sync.Mutex
	of map[types.NamespacedName]turnState
}

// get returns a state; without one its Target has no RequestUID.
func (m *turnStates) get(key types.NamespacedName) turnState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[key]
}

func (m *turnStates) set(key types.NamespacedName, to turnState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[types.NamespacedName]turnState{}
	}
	m.of[key] = to
}

// podGone notes that the pod of a request has ended.
func (m *turnStates) podGone(key types.NamespacedName, request types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state, ok := m.of[key]; ok && state.Target.RequestUID == request {
		state.PodGone = true
		m.of[key] = state
	}
}

// keys are those of all states.
func (m *turnStates) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.of))
}

func (m *turnStates) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}
