package maintenance

import (
	"maps"
	"sync"
	"time"
)

// restorePause is the least time between two writes that make again what somebody takes from a
// node. Two programs that do not agree about its cordon or its taints would else answer each other
// without a pause.
const restorePause = 5 * time.Second

// restored is when a cordon or a taint was last made again, by node. It is a hint, and safe for
// concurrent use.
type restored struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newRestored() *restored { return &restored{at: map[string]time.Time{}} }

// note notes that of a node, and forgets what no longer counts.
func (r *restored) note(node string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.at, func(_ string, at time.Time) bool { return !now.Before(at.Add(restorePause)) })
	r.at[node] = now
}

// last is the zero time if nobody has.
func (r *restored) last(node string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[node]
}
