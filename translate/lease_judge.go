package translate

import (
	"slices"
	"time"
)

// LeaseState is what a lease says about its requester.
type LeaseState int

const (
	// LeaseAlive says that the requester still wants the eviction.
	LeaseAlive LeaseState = iota
	// LeaseMarkersGone says that every drain marker recorded is gone from the node. If
	// that lasts for the debounce, and the requester is silent, the drain was canceled.
	LeaseMarkersGone
	// LeaseExpired says that the requester has been silent for too long.
	LeaseExpired
)

func (s LeaseState) String() string {
	return [...]string{"Alive", "MarkersGone", "Expired"}[s]
}

// DefaultMarkerLimit is how long a marker keeps a silent controller's request.
const DefaultMarkerLimit = 24 * time.Hour

// JudgeLease returns the state of a lease now. The requester is interested as long as
// one of its tools is. RecheckAt is when the answer changes if nothing is written and
// the node stays as it is; zero means never.
//
// kubectl of a person is interested until it was silent for its TTL. A controller may
// leave a node for any time, because it has others to drain: while a marker of its own
// drain is on the node its silence does not count, for at most limit.
//
// An unknown node proves nothing, and a deleted node needs nothing: its pods are
// deleted with it, which completes the requests.
func JudgeLease(rec LeaseRecord, node NodeView, now time.Time, limit time.Duration) (state LeaseState, recheckAt time.Time) {
	for i, v := range rec.Voices() {
		s, at := JudgeVoice(rec, v, node, now, limit)
		switch {
		case i == 0 || s < state:
			state, recheckAt = s, at
		case s > state || recheckAt.IsZero():
		case at.IsZero() || at.After(recheckAt):
			recheckAt = at
		}
	}
	return state, recheckAt
}

// JudgeVoice is JudgeLease for one of the tools.
func JudgeVoice(rec LeaseRecord, v Voice, node NodeView, now time.Time, limit time.Duration) (state LeaseState, recheckAt time.Time) {
	rule := v.Class.rule()
	here := node.Known && !node.Gone
	if rule.heldByDeletion && here && node.Deleting {
		return LeaseAlive, time.Time{}
	}
	expires := v.HeardAt.Add(Granted(v.TTL))
	silent := !now.Before(expires)
	own := slices.DeleteFunc(slices.Clone(rec.Markers), func(marker string) bool { return !v.Class.sets(marker) })
	if stop := v.HeardAt.Add(limit); len(own) > 0 && now.Before(stop) && here && anyIn(own, node.Markers) {
		return LeaseAlive, later(stop, expires)
	}
	if silent && !node.Known && rec.Node != "" && (rule.heldByDeletion || len(own) > 0) {
		return LeaseAlive, now.Add(v.TTL)
	}
	if here && !rule.ignoresMarkers && len(rec.Markers) > 0 && !anyIn(rec.Markers, node.Markers) {
		switch {
		case !silent:
			return LeaseMarkersGone, expires
		case len(own) > 0:
			return LeaseMarkersGone, time.Time{} // Its markers kept it alive until now.
		}
	}
	if silent {
		return LeaseExpired, time.Time{}
	}
	return LeaseAlive, expires
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// anyIn reports whether one of the words is in list.
func anyIn(words, list []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(list, w) })
}
