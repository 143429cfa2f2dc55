package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
)

// eventsInFlight is how many events are written at a time. The recorder writes each
// event immediately and separately. An eviction without interceptors has three, as many
// as writes to its request: during a drain, events would take the API server's time
// from the evictions themselves. An idle API server stores some hundred a second this
// way.
const eventsInFlight = 4

// eventsLast makes writes of events wait for each other. Other requests do not wait.
// The recorders need no answer, so nothing waits for an event.
type eventsLast struct {
	next  http.RoundTripper
	slots chan struct{}
}

// newEventsLast wraps a transport. It may be called more than once, as each client
// made of a configuration does; each has its own slots.
func newEventsLast(next http.RoundTripper) http.RoundTripper {
	return &eventsLast{next: next, slots: make(chan struct{}, eventsInFlight)}
}

// RoundTrip implements http.RoundTripper. The error is that of the transport, or of a
// request that was canceled before its turn.
func (t *eventsLast) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, "/apis/"+eventsv1.GroupName+"/") {
		return t.next.RoundTrip(r)
	}
	select {
	case t.slots <- struct{}{}:
	case <-r.Context().Done():
		err := fmt.Errorf("wait to write an event: %w", r.Context().Err())
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close()) // A transport closes it in any case.
		}
		return nil, err
	}
	// The answer is short: its body comes with the header.
	defer func() { <-t.slots }()
	return t.next.RoundTrip(r)
}
