package request

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// leaseMemory is what is remembered of one lease.
type leaseMemory struct {
	// uid of the lease this is about; another one starts afresh.
	uid types.UID
	// markersGoneSince is when this process first saw that all markers are gone,
	// zero if they are not.
	markersGoneSince time.Time
	// withdrawal is the event for those requests that still name the lease after
	// it was deleted, by requester; zero if it was not deleted by us.
	withdrawal withdrawal
	// seen is when this process saw what the lease says of each kind of tool.
	seen map[translate.CallerClass]leaseSighting
}

// leaseSighting is when a time in a lease was seen first, by our clock.
type leaseSighting struct {
	written, at time.Time
}

// noSkew is more than clocks differ: what was written longer ago was not written now.
const noSkew = time.Hour

// see notes which times in the lease are new to this process, and returns the record
// with the times at which it saw them. What is there when we first look at a lease counts
// as seen now, unless it is too old for that.
func (l *Leases) see(lease *coordinationv1.Lease, rec translate.LeaseRecord) translate.LeaseRecord {
	now := l.Clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memoryOf(lease)
	first := m.seen == nil
	if first {
		m.seen = map[translate.CallerClass]leaseSighting{}
	}
	return rec.With(func(v translate.Voice) time.Time {
		s, known := m.seen[v.Class]
		switch {
		case known && s.written.Equal(v.HeardAt):
			return s.at
		case known && s.written.Sub(v.HeardAt) > noSkew:
			// Set back by hand, by more than clocks differ: it is older than we saw.
			s = leaseSighting{written: v.HeardAt, at: s.at.Add(v.HeardAt.Sub(s.written))}
		case first && now.Sub(v.HeardAt) > noSkew:
			s = leaseSighting{written: v.HeardAt, at: v.HeardAt}
		default:
			s = leaseSighting{written: v.HeardAt, at: now}
		}
		m.seen[v.Class] = s
		return s.at
	})
}

// seeRenewal is see for an event.
func (l *Leases) seeRenewal(lease *coordinationv1.Lease) {
	if rec, err := translate.DecodeLease(lease); err == nil {
		l.see(lease, rec)
	}
}

// memoryOf returns what is remembered of this very lease. The lock must be held.
func (l *Leases) memoryOf(lease *coordinationv1.Lease) *leaseMemory {
	m := l.memory[lease.Name]
	if m == nil || m.uid != lease.UID {
		m = &leaseMemory{uid: lease.UID}
		l.memory[lease.Name] = m
	}
	return m
}

// recall returns since when the markers of this lease are gone.
func (l *Leases) recall(lease *coordinationv1.Lease) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memoryOf(lease).markersGoneSince
}

// recallWithdrawal returns the last known UID of a lease, and why it was deleted if that
// was our doing.
func (l *Leases) recallWithdrawal(name string) (types.UID, withdrawal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.memory[name]; m != nil {
		return m.uid, m.withdrawal
	}
	return "", nil
}

func (l *Leases) remember(lease *coordinationv1.Lease, change func(*leaseMemory)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.memoryOf(lease))
}

func (l *Leases) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.memory, name)
}
