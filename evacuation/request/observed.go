package request

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// observed keeps when this process first saw things that have no time in the API. It is a
// hint: a restart loses it, which costs at most one grace at the end of a request and
// one skew on a heartbeat from the future. The zero value is ready; safe for concurrent
// use.
type observed struct {
	mu       sync.Mutex
	requests map[types.NamespacedName]sighting
}

type sighting struct {
	// uid distinguishes the request from a later one of the same name.
	uid         types.UID
	endSeenAt   time.Time
	interceptor string
	heartbeat   time.Time
	heartbeatAt time.Time
	// foundCompleted is the interceptor that had completed its turn when the request was
	// seen first.
	foundCompleted string
}

// observe records the current state of the request and returns when each part was first
// seen. A sighting in the future (the clock was set back) counts as now: otherwise the
// request would wait until the clock catches up.
func (m *observed) observe(er *v1alpha1.EvictionRequest, ended bool, now time.Time) observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: er.Namespace, Name: er.Name}
	s := m.requests[key]
	if s.uid != er.UID {
		s = sighting{uid: er.UID}
		if active := er.Status.ActiveInterceptors; len(active) > 0 && v1alpha1.ReportOf(er, active[0]).CompletionTime != nil {
			s.foundCompleted = active[0]
		}
	}

	switch {
	case !ended:
		s.endSeenAt = time.Time{}
	case s.endSeenAt.IsZero(), s.endSeenAt.After(now):
		s.endSeenAt = now
	}

	interceptor, heartbeat := "", time.Time{}
	if active := er.Status.ActiveInterceptors; len(active) > 0 {
		interceptor = active[0]
		heartbeat = timeOf(v1alpha1.ReportOf(er, interceptor).HeartbeatTime)
	}
	switch {
	case heartbeat.IsZero():
		s.heartbeatAt = time.Time{}
	case s.interceptor != interceptor, !s.heartbeat.Equal(heartbeat), s.heartbeatAt.After(now):
		s.heartbeatAt = now
	}
	s.interceptor, s.heartbeat = interceptor, heartbeat

	if m.requests == nil {
		m.requests = map[types.NamespacedName]sighting{}
	}
	m.requests[key] = s
	return observation{endSeenAt: s.endSeenAt, heartbeatSeenAt: s.heartbeatAt, foundCompleted: s.foundCompleted}
}

// forget drops a request that is gone or final.
func (m *observed) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.requests, key)
}
