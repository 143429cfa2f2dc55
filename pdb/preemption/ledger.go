package preemption

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// rememberFor is how long the deletion of a victim counts as the result of a
	// decision. The scheduler deletes within about a second, but its clients may be
	// throttled.
	rememberFor = 30 * time.Second
	// maxRemembered bounds the memory, in victims. The oldest decisions go first.
	maxRemembered = 100_000
)

// Ledger remembers the decisions of the last seconds, for Deletes. It is a hint: a
// replica knows its own decisions only, and none after a restart. Safe for
// concurrent use.
type Ledger struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	decisions []remembered // The oldest first.
	victims   int
	covers    map[types.UID][]*cover
}

type remembered struct {
	at      time.Time
	victims []types.UID
}

// cover is a node that a decision kept, with its victims as they were then.
type cover struct {
	preemptor Preemptor
	at        time.Time
	victims   []Victim
}

// NewLedger returns an empty ledger.
func NewLedger(clock clock.PassiveClock) *Ledger {
	return &Ledger{clock: clock, covers: map[types.UID][]*cover{}}
}

// remember notes which nodes the scheduler may use, if any pod on them has a value.
func (l *Ledger) remember(preemptor Preemptor, d Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	l.forget(now)
	entry := remembered{at: now}
	for _, candidate := range d.Kept {
		var c *cover
		for i := range candidate.Victims {
			v := &candidate.Victims[i]
			if v.Value == nil || v.Unknown {
				continue
			}
			if c == nil {
				c = &cover{preemptor: preemptor, at: now, victims: candidate.Victims}
			}
			l.covers[v.UID] = append(l.covers[v.UID], c)
			entry.victims = append(entry.victims, v.UID)
		}
	}
	if len(entry.victims) == 0 {
		return
	}
	l.decisions = append(l.decisions, entry)
	l.victims += len(entry.victims)
	for l.victims > maxRemembered {
		l.drop()
	}
}

// covering returns the covers of a victim, the oldest first.
func (l *Ledger) covering(uid types.UID) []*cover {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(l.clock.Now())
	return append([]*cover(nil), l.covers[uid]...)
}

// forget drops what is too old. Each decision is dropped once.
func (l *Ledger) forget(now time.Time) {
	for len(l.decisions) > 0 && !now.Before(l.decisions[0].at.Add(rememberFor)) {
		l.drop()
	}
}

// drop drops the oldest decision: its covers are the first of each victim.
func (l *Ledger) drop() {
	oldest := l.decisions[0]
	l.decisions = l.decisions[1:]
	l.victims -= len(oldest.victims)
	for _, uid := range oldest.victims {
		if rest := l.covers[uid][1:]; len(rest) > 0 {
			l.covers[uid] = rest
		} else {
			delete(l.covers, uid)
		}
	}
}
