package vm

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// writeLimit limits writes of one kind to one workload. The first two are free: a workload
// may change between read and write.
var writeLimit = controllers.WriteLimit{Free: 2, First: 5 * time.Second, Longest: 5 * time.Minute, Calm: 10 * time.Minute}

// Kinds of writes, which are the values of the metrics' label write, too.
const (
	writeMark   = "mark"
	writeUnmark = "unmark"
	writeCreate = "create_migration"
	writeDelete = "delete_migration"
)

// writeKey is what is written, under which policy.
type writeKey struct {
	policy, write string
	workload      types.NamespacedName
}

// writeLimiter limits the rate of writes to each workload, so that someone who reverts our
// writes cannot make us write in a loop. It is in memory only: after a restart the first
// writes are free again.
type writeLimiter struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	of    map[writeKey]controllers.Writes
}

func (l *writeLimiter) init(c clock.PassiveClock) {
	l.clock, l.of = c, map[writeKey]controllers.Writes{}
}

// limitedError says that a write has to wait.
type limitedError struct {
	write string
	until time.Time
}

func (e *limitedError) Error() string {
	return fmt.Sprintf("the next %s waits until %s, because the last ones did not last", e.write, e.until.UTC().Format(time.RFC3339))
}

// begin requests a write; nil means that it is noted and may be sent now.
func (l *writeLimiter) begin(key writeKey) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if wait := writeLimit.Wait(l.of[key], now); wait > 0 {
		return &limitedError{write: key.write, until: now.Add(wait)}
	}
	l.of[key] = writeLimit.Wrote(l.of[key], now)
	l.sweep(now)
	return nil
}

// forget resets the limit of a policy's writes.
func (l *writeLimiter) forget(policy string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.of, func(key writeKey, _ controllers.Writes) bool { return key.policy == policy })
}

// until is when the next write may be sent, if not now.
func (l *writeLimiter) until(key writeKey) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	wait := writeLimit.Wait(l.of[key], now)
	return now.Add(wait), wait > 0
}

// sweep forgets old entries, once there are many.
func (l *writeLimiter) sweep(now time.Time) {
	const many = 1000
	if len(l.of) < many || len(l.of)%many != 0 {
		return
	}
	maps.DeleteFunc(l.of, func(_ writeKey, w controllers.Writes) bool { return writeLimit.IsCalm(w, now) })
}
