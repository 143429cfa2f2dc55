package guard

import "time"

const (
	// freeWrites of one object are not delayed. An eviction takes two: the guard closes
	// and opens.
	freeWrites = 4
	// After them each write waits twice as long as the one before.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// calmAfter is how long an object must not be written before its count is reset. It
	// is longer than longestPause: an endless fight stays slow.
	calmAfter = 10 * time.Minute
)

// pace limits how often one object is written: even with other writers, or with inputs
// that change all the time, there are at most freeWrites+2 writes in any minute, and in
// the long run one in five. The zero value has seen no writes.
type pace struct {
	writes int
	last   time.Time
}

// wait is how long the next write must wait; 0 means not at all. After a clock jump no
// wait is longer than longestPause.
func (p pace) wait(now time.Time) time.Duration {
	if p.writes < freeWrites || now.Sub(p.last) >= calmAfter {
		return 0
	}
	pause := longestPause
	if doubled := p.writes - freeWrites; doubled < 5 { // 10 s times 32 is more than 5 minutes.
		pause = firstPause << doubled
	}
	return min(max(p.last.Add(pause).Sub(now), 0), longestPause)
}

// wrote is the pace after a write.
func (p pace) wrote(now time.Time) pace {
	if now.Sub(p.last) >= calmAfter {
		p.writes = 0
	}
	return pace{writes: p.writes + 1, last: now}
}
