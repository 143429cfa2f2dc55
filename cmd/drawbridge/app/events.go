package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/transport"
)

// eventsInFlight is how many events are written at a time. The recorder writes each
// event immediately and separately. An eviction without interceptors has two, and three
// writes to its request: during a drain, events would take the API server's time
// from the evictions themselves. An idle API server stores some hundred a second this
// way.
const eventsInFlight = 4

// eventsWaiting is how many events may wait. Each has a goroutine of the recorder and
// takes about 40 KB: 15,000 of them, of 10,000 requests that came at once, took more
// memory than the manager may have. The recorder's own queue is as long.
const eventsWaiting = 1000

// eventsLast makes writes of events wait for each other, and drops those for which there
// is no more room. Other requests do not wait. The recorders need no answer, so nothing
// waits for an event.
type eventsLast struct {
	next    http.RoundTripper
	dropped func()
	// room is for events that wait or are written, slots for those that are written.
	room, slots chan struct{}
}

// eventsLastOf returns a wrapper of transports. It may wrap more than one, as each client
// made of a configuration does; each has its own room. dropped is called for each event
// that is dropped.
func eventsLastOf(dropped func()) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return &eventsLast{
			next: next, dropped: dropped,
			room: make(chan struct{}, eventsWaiting+eventsInFlight), slots: make(chan struct{}, eventsInFlight),
		}
	}
}

// RoundTrip implements http.RoundTripper. The error is that of the transport, or of a
// request that was canceled before its turn.
func (t *eventsLast) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, "/apis/"+eventsv1.GroupName+"/") {
		return t.next.RoundTrip(r)
	}
	select {
	case t.room <- struct{}{}:
		defer func() { <-t.room }()
	default:
		t.dropped()
		return asIfWritten(r)
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

// asIfWritten is the answer to an event that is dropped. The recorder looks at no more than
// whether it has succeeded: it would try again after an error, or log the event.
func asIfWritten(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if err := r.Body.Close(); err != nil { // A transport closes it in any case.
			return nil, fmt.Errorf("drop an event: %w", err)
		}
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": []string{"application/json"}},
		Body:   io.NopCloser(strings.NewReader(`{"kind":"Event","apiVersion":"events.k8s.io/v1"}`)),
	}, nil
}
