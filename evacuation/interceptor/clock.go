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

// minSkew is the smallest offset that counts. It is well below the 10 s that are
// accepted, and the Date of an answer has whole seconds.
const minSkew = 3 * time.Second

// ServerClock measures, from the API server's answers, how far this machine's clock is
// off. If an interceptor's clock is off by more than 10 s, all its reports are refused,
// and it is passed over while it works. So reports use the API server's time. The zero
// value is ready. It is safe for concurrent use.
type ServerClock struct {
	mu     sync.Mutex
	offset time.Duration
}

// Offset is what to add to this machine's time, in whole seconds, accurate to about 3
// s: 0 if the clock is close enough, if no answer has come yet, or for a nil
// ServerClock.
func (s *ServerClock) Offset() time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset
}

// Wrap measures the answers that come through a transport. local is the clock to
// compare: that of Options.
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

// learn takes the Date of an answer, which was written between the two times and is
// truncated to a second. The known offset stays while it is possible, within minSkew,
// so that it does not jitter.
func (s *ServerClock) learn(date string, sent, received time.Time) {
	at, err := http.ParseTime(date)
	if err != nil {
		return // A proxy may remove it.
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

// clockedClient is a client without a cache whose answers feed the ServerClock of the
// Options.
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

// shifted returns the same answer by another clock.
func (p Progress) shifted(by time.Duration) *Progress {
	p.ExpectedFinishTime = shift(p.ExpectedFinishTime, by)
	return &p
}
