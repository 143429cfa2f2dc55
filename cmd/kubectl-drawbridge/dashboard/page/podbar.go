package page

import (
	"strconv"
	"strings"
)

// podBar are a node's pods by state.
type podBar struct {
	// Done have left. Working have an interceptor at work or are being evicted, Waiting wait for
	// an EvictionBudget, Blocked cannot go. The rest of Total has not begun.
	Done, Working, Waiting, Blocked, Total int
}

// podBarPart is a part of the bar, as wide as its share.
type podBarPart struct {
	X, Width percent
	Class    string
}

// podBarOf keeps what is known consistent: what counts pods looks at other moments than what has
// their states.
func podBarOf(done, running, waiting, blocked, total int) podBar {
	b := podBar{Done: done, Waiting: waiting, Blocked: blocked, Working: max(running-waiting-blocked, 0)}
	b.Total = max(total, b.Done+b.Working+b.Waiting+b.Blocked)
	return b
}

// Parts from left to right.
func (b podBar) Parts() []podBarPart {
	const all = 100
	var parts []podBarPart
	at := percent(0)
	for _, p := range []struct {
		class string
		n     int
	}{{toneGood, b.Done}, {toneBusy, b.Working}, {toneWait, b.Waiting}, {toneBad, b.Blocked}} {
		if p.n > 0 {
			width := percent(p.n) * all / percent(b.Total)
			parts = append(parts, podBarPart{X: at, Width: width, Class: p.class})
			at += width
		}
	}
	return parts
}

// Text says the same in words.
func (b podBar) Text() string {
	said := []string{strconv.Itoa(b.Done) + " of " + strconv.Itoa(b.Total)}
	for _, p := range []struct {
		n    int
		what string
	}{{b.Working, "in progress"}, {b.Waiting, "waiting for a budget"}, {b.Blocked, "blocked"}} {
		if p.n > 0 {
			said = append(said, strconv.Itoa(p.n)+" "+p.what)
		}
	}
	return strings.Join(said, ", ")
}
