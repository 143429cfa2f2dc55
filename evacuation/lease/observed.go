package lease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// observed is what this process has seen of one lease.
type observed struct {
	// uid of the lease; another lease starts from scratch.
	uid types.UID
	// markersGoneSince is when this process first saw that all markers are gone,
	// zero if they are not.
	markersGoneSince time.Time
	// withdrawal is the event for requests that still name the lease after its deletion,
	// by requester; zero if we did not delete it.
	withdrawal withdrawal
	// seen is when this process saw the lease's times for each kind of tool.
	seen map[translate.CallerClass]sighting
}

// sighting is when a time in a lease was first seen, by our clock.
type sighting struct {
	written, at time.Time
}

// noSkew is more than clocks differ: older times were not written just now.
const noSkew = time.Hour

// see notes which times in the lease are new to this process, and returns the record with
// the times at which it saw them. Times found when we first see a lease count as seen
// now, unless they are too old.
func (l *Reconciler) see(lease *coordinationv1.Lease, rec translate.LeaseRecord) translate.LeaseRecord {
	now := l.Clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.observedOf(lease)
	first := m.seen == nil
	if first {
		m.seen = map[translate.CallerClass]sighting{}
	}
	return rec.With(func(v translate.Voice) time.Time {
		s, known := m.seen[v.Class]
		switch {
		case known && s.written.Equal(v.HeardAt):
			return s.at
		case known && s.written.Sub(v.HeardAt) > noSkew:
			// Set back manually, by more than clocks differ: it is older than what we
			// saw.
			s = sighting{written: v.HeardAt, at: s.at.Add(v.HeardAt.Sub(s.written))}
		case first && now.Sub(v.HeardAt) > noSkew:
			s = sighting{written: v.HeardAt, at: v.HeardAt}
		default:
			s = sighting{written: v.HeardAt, at: now}
		}
		m.seen[v.Class] = s
		return s.at
	})
}

// seeRenewal is see for an event.
func (l *Reconciler) seeRenewal(lease *coordinationv1.Lease) {
	if rec, err := translate.DecodeLease(lease); err == nil {
		l.see(lease, rec)
	}
}

// observedOf returns what was seen of this lease. The lock must be held.
func (l *Reconciler) observedOf(lease *coordinationv1.Lease) *observed {
	m := l.observed[lease.Name]
	if m == nil || m.uid != lease.UID {
		m = &observed{uid: lease.UID}
		l.observed[lease.Name] = m
	}
	return m
}

// recall returns since when the markers of this lease are gone.
func (l *Reconciler) recall(lease *coordinationv1.Lease) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.observedOf(lease).markersGoneSince
}

// recallWithdrawal returns the last known UID of a lease, and why it was deleted if that
// was our doing.
func (l *Reconciler) recallWithdrawal(name string) (types.UID, withdrawal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.observed[name]; m != nil {
		return m.uid, m.withdrawal
	}
	return "", nil
}

func (l *Reconciler) remember(lease *coordinationv1.Lease, change func(*observed)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.observedOf(lease))
}

func (l *Reconciler) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.observed, name)
}
