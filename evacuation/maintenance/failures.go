package maintenance

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// failures are why pods could not be asked to go, by their UID. It is a hint, and safe for
// concurrent use.
type failures struct {
	mu sync.Mutex
	// evictions are why evictions could not be requested.
	evictions map[types.UID]string
	// conditions is when the conditions of pods were first refused.
	conditions map[types.UID]time.Time
}

func newFailures() *failures {
	return &failures{evictions: map[types.UID]string{}, conditions: map[types.UID]time.Time{}}
}

// eviction notes why a pod's eviction could not be requested; empty if it could.
func (f *failures) eviction(pod types.UID, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why == "" {
		delete(f.evictions, pod)
		return
	}
	f.evictions[pod] = why
}

func (f *failures) whyNoEviction(pod types.UID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.evictions[pod]
}

// condition notes that a pod's condition is refused; not refused: that it is stored, or
// needed no more.
func (f *failures) condition(pod types.UID, refused bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !refused {
		delete(f.conditions, pod)
	} else if f.conditions[pod].IsZero() {
		f.conditions[pod] = now
	}
}

// conditionRefusedAt is when a pod's condition was first refused; zero if it was not.
func (f *failures) conditionRefusedAt(pod types.UID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conditions[pod]
}
