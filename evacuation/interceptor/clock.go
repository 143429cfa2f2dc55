package interceptor

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// minSkew is what counts as a clock that is off. It is far from the 10 s that are
// accepted, and the Date of an answer has whole seconds.
const minSkew = 3 * time.Second

// ServerClock learns from the answers of the API server how far this machine's
// clock is off. An interceptor whose clock is off by more than 10 s has every
// report refused, and is passed over while it works; so its reports go by the API
// server's clock. The zero value is ready. It is safe for concurrent use.
type ServerClock struct {
	mu     sync.Mutex
	offset time.Duration
}

// Offset is what has to be added to this machine's time, in whole seconds, right
// within about 3 of them: 0 if that is near enough, or if no answer has come yet. A
// nil ServerClock knows of none.
func (s *ServerClock) Offset() time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset
}

// Wrap looks at the answers that come through a transport. Local is the clock that
// is judged: that of Options.
func (s *ServerClock) Wrap(next http.RoundTripper, local clock.PassiveClock) http.RoundTripper {
	return transport(func(req *http.Request) (*http.Response, error) {
		sent := local.Now()
		resp, err := next.RoundTrip(req)
		if err == nil {
			s.learn(resp.Header.Get("Date"), sent, local.Now())
		}
		return resp, err
	})
}

// learn takes the Date of an answer, which was written at some time between the
// two and is cut to a second. What is known stays as long as that is possible, give
// or take minSkew, so that the offset does not tremble.
func (s *ServerClock) learn(date string, sent, received time.Time) {
	at, err := http.ParseTime(date)
	if err != nil {
		return // A proxy may leave it out.
	}
	least, most := at.Sub(received), at.Add(time.Second).Sub(sent)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offset < least-minSkew || s.offset > most+minSkew {
		s.offset = (least + (most-least)/2).Round(time.Second)
	}
}

// transport is a function that is a RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// clockedClient is a client without a cache, by whose answers the ServerClock of
// the Options learns.
func clockedClient(mgr ctrl.Manager, o Options) (client.Client, error) {
	wrapped := *mgr.GetHTTPClient() // The manager's own stays as it is.
	next := wrapped.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	wrapped.Transport = o.ServerClock.Wrap(next, o.Clock)
	c, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: &wrapped, Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("set up the reports of interceptor %s: %w", o.Name, err)
	}
	return c, nil
}

// shift moves a time that is set.
func shift(at time.Time, by time.Duration) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(by)
}

// shifted is the same answer by another clock.
func (p Progress) shifted(by time.Duration) *Progress {
	p.ExpectedFinishTime = shift(p.ExpectedFinishTime, by)
	return &p
}
