package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// answering is a transport that answers when it is told to, and knows whom it keeps
// waiting. It is for one bubble of synctest, which says when nothing moves any more.
type answering struct {
	calls   chan string
	answers chan struct{}
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.calls <- r.Method + " " + r.URL.Path
	<-a.answers
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": []string{"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"kind":"Event","apiVersion":"events.k8s.io/v1"}`)),
	}, nil
}

func TestEventsWaitForEachOther(t *testing.T) {
	const event = "/apis/events.k8s.io/v1/namespaces/default/events"
	tests := map[string]struct {
		method, path string
		// sent is how many of ten requests the API server sees at the same time.
		sent int
	}{
		"new events":                      {http.MethodPost, event, eventsInFlight},
		"events that go on":               {http.MethodPatch, event + "/db-0.1", eventsInFlight},
		"reads of events do not":          {http.MethodGet, event, 10},
		"evictions do not":                {http.MethodPost, "/api/v1/namespaces/default/pods/db-0/eviction", 10},
		"writes of our own API do not":    {http.MethodPatch, "/apis/drawbridge.dev/v1alpha1/namespaces/default/evictionrequests/db-0/status", 10},
		"groups of a similar name do not": {http.MethodPost, "/apis/events.k8s.io.example.com/v1/things", 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &answering{calls: make(chan string, 10), answers: make(chan struct{}, 10)}
				transport := eventsLastOf(func() { t.Error("an event was dropped") })(server)
				done := make(chan error, 10)
				for range 10 {
					go func() { done <- send(t.Context(), transport, tt.method, tt.path) }()
				}
				synctest.Wait()
				if diff := cmp.Diff(tt.sent, len(server.calls)); diff != "" {
					t.Errorf("requests sent at the same time (-want +got):\n%s", diff)
				}
				for range 10 {
					server.answers <- struct{}{}
				}
				for range 10 {
					if err := <-done; err != nil {
						t.Errorf("want all to be sent in the end, got %v", err)
					}
				}
			})
		})
	}
}

func TestAnEventThatIsGivenUpDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answering{calls: make(chan string, 10), answers: make(chan struct{}, 10)}
		transport := eventsLastOf(func() { t.Error("an event was dropped") })(server)
		const event = "/apis/events.k8s.io/v1/namespaces/default/events"
		done := make(chan error, eventsInFlight)
		for range eventsInFlight {
			go func() { done <- send(t.Context(), transport, http.MethodPost, event) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := send(ctx, transport, http.MethodPost, event); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "wait to write an event") {
			t.Errorf("want the end of the wait, got %v", err)
		}
		for range eventsInFlight {
			server.answers <- struct{}{}
			if err := <-done; err != nil {
				t.Errorf("want the others to be sent, got %v", err)
			}
		}
	})
}

// client-go's own recorder is asked, because it decides what becomes of an event by the answer.
func TestEventsForWhichThereIsNoRoomAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, more = eventsWaiting + eventsInFlight, 25
		server := &answering{calls: make(chan string, room+1), answers: make(chan struct{}, room+1)}
		var dropped, logged atomic.Int64
		conf := &rest.Config{Host: "https://kubernetes.default", QPS: -1, Transport: server}
		conf.Wrap(eventsLastOf(func() { dropped.Add(1) }))
		clients, err := eventsclient.NewForConfig(conf)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, args string) {
			logged.Add(1)
			t.Log(args)
		}, funcr.Options{})))
		defer cancel()
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients})
		defer broadcaster.Shutdown()
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			t.Fatal(err)
		}
		recorder := broadcaster.NewRecorder(newScheme(), recorderName)
		record := func(pod int) {
			recorder.Eventf(builder.Pod("default", fmt.Sprintf("web-%d", pod)).Obj(), nil, corev1.EventTypeNormal, "Evicted", "Evict", "gone")
			synctest.Wait()
		}

		for pod := range room {
			record(pod)
		}
		for pod := range more {
			record(room + pod)
			record(room + pod) // It goes on: a patch.
		}
		if diff := cmp.Diff([]int64{2 * more, 0}, []int64{dropped.Load(), logged.Load()}); diff != "" {
			t.Errorf("dropped events, and what the recorder logs of them because it tries again or gives up (-want +got):\n%s", diff)
		}
		for range room {
			server.answers <- struct{}{}
		}
		synctest.Wait()
		if got := len(server.calls); got != room {
			t.Errorf("%d events were sent, want all %d that waited", got, room)
		}
		record(room + more)
		if got := len(server.calls); got != room+1 || dropped.Load() != 2*more {
			t.Errorf("%d events were sent and %d dropped, want that there is room again", got, dropped.Load())
		}
		server.answers <- struct{}{}
		synctest.Wait()
	})
}

func send(ctx context.Context, transport http.RoundTripper, method, path string) error {
	r, err := http.NewRequestWithContext(ctx, method, "https://kubernetes.default"+path, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
