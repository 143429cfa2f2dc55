package maintenance

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// memory is what the controllers share, and their failures. All of it is a hint. It is
// safe for concurrent use.
type memory struct {
	mu sync.Mutex
	// decided are the stages that maintenances have decided on for their nodes.
	decided map[string]map[string]v1alpha1.MaintenanceStage
	// failures are why evictions could not be requested, by the pod's UID.
	failures map[types.UID]string
	// asked is when the conditions of pods were first refused, by the pod's UID.
	asked map[types.UID]time.Time
	// written is when the status of a maintenance was written.
	written map[string]time.Time
}

func newMemory() *memory {
	return &memory{
		decided:  map[string]map[string]v1alpha1.MaintenanceStage{},
		failures: map[types.UID]string{},
		asked:    map[types.UID]time.Time{},
		written:  map[string]time.Time{},
	}
}

// decide notes the stages that a maintenance wants for its nodes.
func (m *memory) decide(maintenance string, stages map[string]v1alpha1.MaintenanceStage) {
	stages = maps.Clone(stages)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.decided[maintenance] = stages
}

// decision is what a maintenance has decided for a node; empty if it has not.
func (m *memory) decision(maintenance, node string) v1alpha1.MaintenanceStage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.decided[maintenance][node]
}

// fail notes why a pod's eviction could not be requested; empty if it could.
func (m *memory) fail(pod types.UID, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if why == "" {
		delete(m.failures, pod)
		return
	}
	m.failures[pod] = why
}

func (m *memory) failure(pod types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failures[pod]
}

// ask notes that a pod's condition is refused; not refused: that it is stored, or needed no
// more.
func (m *memory) ask(pod types.UID, refused bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !refused {
		delete(m.asked, pod)
	} else if m.asked[pod].IsZero() {
		m.asked[pod] = now
	}
}

// askedInVain is when a pod's condition was first refused; zero if it was not.
func (m *memory) askedInVain(pod types.UID) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[pod]
}

// wrote notes when a status was written.
func (m *memory) wrote(maintenance string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written[maintenance] = now
}

func (m *memory) lastWrote(maintenance string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.written[maintenance]
}

// forget forgets a maintenance that is gone.
func (m *memory) forget(maintenance string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.decided, maintenance)
	delete(m.written, maintenance)
}
