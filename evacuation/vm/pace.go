package vm

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Pauses between writes of one kind to one workload. The first two are free: a workload
// may change between read and write. Then the pause doubles. It is reset when nothing
// was written for longer than the longest pause.
const (
	freeWrites = 2
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// Kinds of writes, which are the values of the metrics' label write, too.
const (
	writeMark   = "mark"
	writeUnmark = "unmark"
	writeCreate = "create_migration"
	writeDelete = "delete_migration"
)

// paceKey is what is written, under which policy.
type paceKey struct {
	policy, write string
	workload      types.NamespacedName
}

// paces limit the rate of writes to each workload, so that someone who reverts our
// writes cannot make us write in a loop. They are in memory only: after a restart the
// first writes are free again.
type paces struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	of    map[paceKey]pace
}

type pace struct {
	writes int
	last   time.Time
}

func (p *paces) init(c clock.PassiveClock) { p.clock, p.of = c, map[paceKey]pace{} }

// pacedError says that a write has to wait.
type pacedError struct {
	write string
	until time.Time
}

func (e *pacedError) Error() string {
	return fmt.Sprintf("the next %s waits until %s, because the last ones did not last", e.write, e.until.UTC().Format(time.RFC3339))
}

// begin requests a write; nil means that it is noted and may be sent now.
func (p *paces) begin(key paceKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	known := p.of[key]
	if now.Sub(known.last) > 2*lastPause {
		known = pace{}
	}
	if until := known.last.Add(pauseAfter(known.writes)); known.writes > 0 && now.Before(until) {
		return &pacedError{write: key.write, until: until}
	}
	p.of[key] = pace{writes: known.writes + 1, last: now}
	p.sweep(now)
	return nil
}

// forget resets the pace of a policy's writes.
func (p *paces) forget(policy string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.of, func(key paceKey, _ pace) bool { return key.policy == policy })
}

// until is when the next write may be sent, if not now.
func (p *paces) until(key paceKey) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of[key]
	until := known.last.Add(pauseAfter(known.writes))
	return until, p.clock.Now().Before(until)
}

// pauseAfter is the pause after so many writes.
func pauseAfter(writes int) time.Duration {
	if writes < freeWrites {
		return 0
	}
	pause := firstPause
	for range writes - freeWrites {
		if pause >= lastPause {
			break
		}
		pause *= 2
	}
	return min(pause, lastPause)
}

// sweep forgets old entries, once there are many.
func (p *paces) sweep(now time.Time) {
	const many = 1000
	if len(p.of) < many || len(p.of)%many != 0 {
		return
	}
	for key, known := range p.of {
		if now.Sub(known.last) > 2*lastPause {
			delete(p.of, key)
		}
	}
}

// unheard are the marks that the platform does not accept: policy -> request -> what is
// wrong.
type unheard struct {
	mu sync.Mutex
	of map[string]map[types.UID]setback
}

// setback is why a write had no effect.
type setback struct {
	// reason is one of the condition Marking.
	reason string
	// text names the workload and, of a write that was discarded, the field.
	text string
}

func (u *unheard) init() { u.of = map[string]map[types.UID]setback{} }

// add reports whether that is news about the request.
func (u *unheard) add(policy string, request types.UID, what setback) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[policy] == nil {
		u.of[policy] = map[types.UID]setback{}
	}
	_, known := u.of[policy][request]
	u.of[policy][request] = what
	return !known
}

// remove reports whether that is news.
func (u *unheard) remove(request types.UID) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, requests := range u.of {
		if _, known := requests[request]; known {
			delete(requests, request)
			news = true
		}
	}
	return news
}

// retain forgets all requests for which keep is false.
func (u *unheard) retain(policy string, keep func(types.UID) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for request := range u.of[policy] {
		if !keep(request) {
			delete(u.of[policy], request)
		}
	}
}

// summary returns how many there are, and the first by its text.
func (u *unheard) summary(policy string) (count int, first setback) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, what := range u.of[policy] {
		if count++; first.text == "" || what.text < first.text {
			first = what
		}
	}
	return count, first
}
