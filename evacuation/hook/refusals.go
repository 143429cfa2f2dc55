package hook

import (
	"maps"
	"sync"
	"time"
)

// refusals are the Jobs that the API server has refused lately. What ends a turn asks for them
// more often than it should: the SDK, the request's end, the sweep, and each change of a Job.
type refusals struct {
	mu sync.Mutex
	of map[string]refused
}

type refused struct {
	message string
	at      time.Time
}

// lately is the answer of the last time, unless that was so long ago that it is worth another.
func (r *refusals) lately(job string, now time.Time) (work, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.of[job]
	left := troubleRetry - now.Sub(last.at)
	if !ok || left <= 0 || left > troubleRetry { // The clock may be set back.
		return work{}, false
	}
	return work{State: stateRunning, Message: last.message, CheckAfter: left}, true
}

func (r *refusals) add(job, message string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Those of hooks and requests that are gone are asked for no more.
	maps.DeleteFunc(r.of, func(_ string, last refused) bool { return now.Sub(last.at) > 2*troubleRetry })
	if r.of == nil {
		r.of = map[string]refused{}
	}
	r.of[job] = refused{message, now}
}

func (r *refusals) forget(job string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, job)
}
