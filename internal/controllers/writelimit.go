package controllers

import "time"

// WriteLimit limits how often one object is written, so that other writers, or inputs that
// change all the time, cannot make us write in a loop.
type WriteLimit struct {
	// Free is how many writes are not delayed.
	Free int
	// First is how long the first write after them waits. Each waits twice as long as the
	// one before, but at most Longest.
	First, Longest time.Duration
	// Calm is how long an object must not be written before its count is reset. If it is
	// longer than Longest, an endless fight stays slow.
	Calm time.Duration
}

// Writes are the last writes of one object. The zero value has seen none.
type Writes struct {
	count int
	last  time.Time
}

// Wait is how long the next write must wait; 0 means not at all. After a clock jump no
// wait is longer than Longest.
func (l WriteLimit) Wait(w Writes, now time.Time) time.Duration {
	if w.count < l.Free || l.IsCalm(w, now) {
		return 0
	}
	pause := l.First
	for range w.count - l.Free {
		if pause >= l.Longest {
			break
		}
		pause *= 2
	}
	return min(max(w.last.Add(min(pause, l.Longest)).Sub(now), 0), l.Longest)
}

// Wrote returns the writes with one more.
func (l WriteLimit) Wrote(w Writes, now time.Time) Writes {
	if l.IsCalm(w, now) {
		w.count = 0
	}
	return Writes{count: w.count + 1, last: now}
}

// IsCalm reports whether the writes are so long ago that they count no more.
func (l WriteLimit) IsCalm(w Writes, now time.Time) bool { return now.Sub(w.last) >= l.Calm }
