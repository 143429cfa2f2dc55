package guard

import "time"

const (
	// freeWrites of one object go at once. An eviction takes two: the guard closes, and
	// opens.
	freeWrites = 4
	// After them each write waits twice as long as the one before.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// calmAfter is how long an object is left in peace before its writes count anew.
	// It is longer than longestPause: a fight that never ends stays slow.
	calmAfter = 10 * time.Minute
)

// pace bounds how often one object is written: whatever writes it, too, or makes the
// guard think of something else all the time, there are at most freeWrites+2 writes in
// any minute, and in the long run one in five. The zero value has seen no writes.
type pace struct {
	writes int
	last   time.Time
}

// wait is how long the next write has to wait; 0 means that it may go now. After a jump
// of the clock no wait is longer than longestPause.
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
