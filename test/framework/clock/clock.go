// Package clock is a clock for tests that flows like the real one and can be
// advanced. Timers, tickers and delayed functions obey both: they fire when
// enough real time has passed, or at once when Advance carries the clock past
// them. A manager under test can so live through a 20 minute deadline in a
// moment while everything else about it stays real.
package clock

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

var _ clock.WithTickerAndDelayedExecution = (*Clock)(nil)

// Clock is the real clock plus an offset. The zero value is not usable, see New.
// It is safe for concurrent use and owns no goroutine.
type Clock struct {
	mu     sync.Mutex
	offset time.Duration
	queue  waiters
	// advances are all there were.
	advances []Advance
	// alarm is the one real timer, set to the earliest waiter.
	alarm *time.Timer
}

// New returns a clock that shows the present and flows.
func New() *Clock {
	return &Clock{}
}

// Now returns the real time plus all that the clock was advanced by.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	return time.Now().Add(c.offset)
}

// Since returns the time passed on this clock since t.
func (c *Clock) Since(t time.Time) time.Duration {
	return c.Now().Sub(t)
}

// Offset returns how far the clock is ahead of the real one (behind, if
// negative).
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// Advance moves the clock by d. Everything that falls due fires before Advance
// returns: channels have their value, delayed functions have been started. A
// negative d sets the clock back, as a broken time server would; waiters keep
// the instant they wait for.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.move(d)
}

// AdvanceTo moves the clock to t. A t that has passed already changes nothing.
func (c *Clock) AdvanceTo(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ahead := t.Sub(c.now()); ahead > 0 {
		c.move(ahead)
	}
}

// move moves the clock. The lock is held.
func (c *Clock) move(d time.Duration) {
	c.advances = append(c.advances, Advance{At: time.Now(), By: d})
	c.offset += d
	c.fire()
}

// Advance is that a clock was moved.
type Advance struct {
	// At is when, in real time.
	At time.Time
	// By is how far; negative when it was set back.
	By time.Duration
}

// Advances returns how the clock was moved so far.
func (c *Clock) Advances() []Advance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.advances)
}

// Waiting returns how many timers, tickers and delayed functions wait.
func (c *Clock) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// After returns the channel of a new timer.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	return c.NewTimer(d).C()
}

// Sleep blocks until d has passed on this clock.
func (c *Clock) Sleep(d time.Duration) {
	<-c.After(d)
}

// Tick returns the channel of a new ticker, or nil if d is not positive.
func (c *Clock) Tick(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return c.NewTicker(d).C()
}

// NewTimer returns a timer that fires once, after d.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	w := &waiter{clock: c, index: gone, ch: make(chan time.Time, 1)}
	w.start(d)
	return timer{w}
}

// AfterFunc runs f in its own goroutine after d.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer {
	w := &waiter{clock: c, index: gone, run: f}
	w.start(d)
	return timer{w}
}

// NewTicker returns a ticker. Like the real one it drops ticks for a slow
// reader, and one Advance over many periods gives one tick. It panics if d is
// not positive.
func (c *Clock) NewTicker(d time.Duration) clock.Ticker {
	if d <= 0 {
		panic("clock: non-positive interval for NewTicker")
	}
	w := &waiter{clock: c, index: gone, ch: make(chan time.Time, 1), every: d}
	w.start(d)
	return ticker{w}
}

// fire serves everything that is due and sets the alarm for the next. The lock
// is held.
func (c *Clock) fire() {
	now := c.now()
	for len(c.queue) > 0 && !c.queue[0].due.After(now) {
		w := heap.Pop(&c.queue).(*waiter)
		w.serve(now)
		if w.every > 0 {
			w.due = w.due.Add(w.every)
			if !w.due.After(now) {
				w.due = now.Add(w.every)
			}
			heap.Push(&c.queue, w)
		}
	}
	if c.alarm != nil {
		c.alarm.Stop()
	}
	if len(c.queue) == 0 {
		return
	}
	// A stopped alarm whose function has begun already only looks once more.
	c.alarm = time.AfterFunc(c.queue[0].due.Sub(now), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fire()
	})
}

// gone is the index of a waiter that is not in the queue.
const gone = -1

// waiter is a timer, a ticker (every) or a delayed function (run).
type waiter struct {
	clock *Clock
	due   time.Time
	every time.Duration
	ch    chan time.Time
	run   func()
	index int
}

func (w *waiter) start(d time.Duration) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.enqueue(d)
}

func (w *waiter) enqueue(d time.Duration) {
	w.due = w.clock.now().Add(d)
	heap.Push(&w.clock.queue, w)
	w.clock.fire()
}

// dequeue reports whether the waiter was still waiting, and forgets a value
// nobody has read, as Stop and Reset of the real timers do since Go 1.23.
func (w *waiter) dequeue() bool {
	select {
	case <-w.ch:
	default:
	}
	if w.index == gone {
		return false
	}
	heap.Remove(&w.clock.queue, w.index)
	return true
}

func (w *waiter) serve(now time.Time) {
	if w.run != nil {
		go w.run()
		return
	}
	select {
	case w.ch <- now:
	default:
	}
}

func (w *waiter) stop() bool {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	return w.dequeue()
}

type timer struct{ w *waiter }

func (t timer) C() <-chan time.Time { return t.w.ch }

func (t timer) Stop() bool { return t.w.stop() }

func (t timer) Reset(d time.Duration) bool {
	t.w.clock.mu.Lock()
	defer t.w.clock.mu.Unlock()
	active := t.w.dequeue()
	t.w.enqueue(d)
	return active
}

type ticker struct{ w *waiter }

func (t ticker) C() <-chan time.Time { return t.w.ch }

func (t ticker) Stop() { t.w.stop() }

// waiters is a heap, the earliest first.
type waiters []*waiter

func (q *waiters) Len() int           { return len(*q) }
func (q *waiters) Less(i, j int) bool { return (*q)[i].due.Before((*q)[j].due) }

func (q *waiters) Swap(i, j int) {
	all := *q
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

func (q *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}

func (q *waiters) Pop() any {
	old := *q
	last := len(old) - 1
	w := old[last]
	old[last] = nil
	w.index = gone
	*q = old[:last]
	return w
}
