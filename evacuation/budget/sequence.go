package budget

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// patience is how long a decision waits for those before it, and how long one may last before
// nobody waits for it at all.
const patience = 2 * time.Second

// errBusy: another decision of the namespace takes long.
var errBusy = errors.New("another decision about the namespace is being made")

// sequence makes one decision of a namespace follow the other, the first that came first. A
// decision asks the API server, which may not answer: then the others come again later, because
// those who wait are workers that other namespaces need.
type sequence struct {
	taken chan struct{} // Of one place.
	// since is when the decision began; nil if there is none.
	since atomic.Pointer[time.Time]
}

func newSequence() *sequence { return &sequence{taken: make(chan struct{}, 1)} }

// begin waits until a decision may begin. After errBusy it may not, else end ends it.
func (s *sequence) begin(ctx context.Context, c clock.PassiveClock) error {
	select {
	case s.taken <- struct{}{}:
	default:
		if err := s.wait(ctx, c); err != nil {
			return err
		}
	}
	s.since.Store(new(c.Now()))
	return nil
}

func (s *sequence) wait(ctx context.Context, c clock.PassiveClock) error {
	if since := s.since.Load(); since != nil && c.Since(*since) >= patience {
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case s.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errBusy
	}
}

func (s *sequence) end() {
	s.since.Store(nil)
	<-s.taken
}
