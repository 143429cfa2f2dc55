package vm

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// statusEvery and statusBurst limit the status writes of one generation of a policy: its
// conditions count pods, and pods may come and go all the time.
const (
	statusEvery = 10 * time.Second
	statusBurst = 4
)

// statusLimiter limits the status writes of each policy. It is in memory only: a restart may
// write once more. The zero value is ready.
type statusLimiter struct {
	mu sync.Mutex
	of map[string]statusLimit
}

type statusLimit struct {
	uid        types.UID
	generation int64
	limiter    *rate.Limiter
}

// wait is how long the next write has to wait; at zero that write is counted as made.
func (s *statusLimiter) wait(p *policy, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.of[p.name]
	if !ok || own.uid != p.uid || own.generation != p.generation {
		own = statusLimit{p.uid, p.generation, rate.NewLimiter(rate.Every(statusEvery), statusBurst)}
		if s.of == nil {
			s.of = map[string]statusLimit{}
		}
		s.of[p.name] = own
	}
	write := own.limiter.ReserveN(now, 1)
	delay := write.DelayFrom(now)
	if delay > 0 {
		write.CancelAt(now)
	}
	return delay
}

// forget forgets a policy that is gone.
func (s *statusLimiter) forget(policy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, policy)
}
