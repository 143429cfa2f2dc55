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

// RecentDecisions has the decisions of the last seconds, for Deletes. It is a hint: a
// replica knows its own decisions only, and none after a restart. Safe for
// concurrent use.
type RecentDecisions struct {
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

// NewRecentDecisions returns an empty one.
func NewRecentDecisions(clock clock.PassiveClock) *RecentDecisions {
	return &RecentDecisions{clock: clock, covers: map[types.UID][]*cover{}}
}

// remember notes which nodes the scheduler may use, if any pod on them has a value.
func (r *RecentDecisions) remember(preemptor Preemptor, d Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.forget(now)
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
			r.covers[v.UID] = append(r.covers[v.UID], c)
			entry.victims = append(entry.victims, v.UID)
		}
	}
	if len(entry.victims) == 0 {
		return
	}
	r.decisions = append(r.decisions, entry)
	r.victims += len(entry.victims)
	for r.victims > maxRemembered {
		r.drop()
	}
}

// covering returns the covers of a victim, the oldest first.
func (r *RecentDecisions) covering(uid types.UID) []*cover {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(r.clock.Now())
	return append([]*cover(nil), r.covers[uid]...)
}

// forget drops what is too old. Each decision is dropped once.
func (r *RecentDecisions) forget(now time.Time) {
	for len(r.decisions) > 0 && !now.Before(r.decisions[0].at.Add(rememberFor)) {
		r.drop()
	}
}

// drop drops the oldest decision: its covers are the first of each victim.
func (r *RecentDecisions) drop() {
	oldest := r.decisions[0]
	r.decisions = r.decisions[1:]
	r.victims -= len(oldest.victims)
	for _, uid := range oldest.victims {
		if rest := r.covers[uid][1:]; len(rest) > 0 {
			r.covers[uid] = rest
		} else {
			delete(r.covers, uid)
		}
	}
}
