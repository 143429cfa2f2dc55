package httpcall

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestWhatAnAnswerMeans(t *testing.T) {
	cases := map[string]struct {
		status   int
		header   map[string]string
		body     string
		want     Answer
		wantFail string
		// wantRefused is the reason of a refusal.
		wantRefused string
	}{
		"200 is done":           {status: 200, body: "dumped\n\x1b[2J 3\n tables\u202e", want: Answer{Done: true, Status: 200, Message: "200 OK: dumped [2J 3 tables"}},
		"204 is done":           {status: 204, want: Answer{Done: true, Status: 204, Message: "204 No Content"}},
		"202 is asked again":    {status: 202, want: Answer{Poll: "https://hooks.example.com:PORT/do?x=1", RetryAfter: 5 * time.Second, Status: 202, Message: "202 Accepted"}},
		"202 with a path":       {status: 202, header: map[string]string{"Location": "/jobs/1#x"}, want: Answer{Poll: "https://hooks.example.com:PORT/jobs/1", RetryAfter: 5 * time.Second, Status: 202, Message: "202 Accepted"}},
		"202 with another host": {status: 202, header: map[string]string{"Location": "https://other.example.com/"}, want: Answer{Poll: "https://other.example.com/", RetryAfter: 5 * time.Second, Status: 202, Message: "202 Accepted"}},
		"202 with a host that is refused": {
			status: 202, header: map[string]string{"Location": "https://169.254.169.254/latest"},
			wantRefused: "the server answered 202 with a Location: the address 169.254.169.254 is link-local",
		},
		"202 with http to a host": {
			status: 202, header: map[string]string{"Location": "http://hooks.example.com/"},
			wantRefused: "the server answered 202 with a Location: http to hooks.example.com",
		},
		"202 with a Location that is none": {
			status: 202, header: map[string]string{"Location": "https://a b/"},
			wantRefused: "the server answered 202 with a Location: the URL is malformed",
		},
		"429 waits for seconds":       {status: 429, header: map[string]string{"Retry-After": "17"}, want: Answer{RetryAfter: 17 * time.Second, Status: 429, Message: "429 Too Many Requests"}},
		"503 waits until a date":      {status: 503, header: map[string]string{"Retry-After": now.Add(time.Minute).Format(http.TimeFormat)}, want: Answer{RetryAfter: time.Minute, Status: 503, Message: "503 Service Unavailable"}},
		"503 waits at least a second": {status: 503, header: map[string]string{"Retry-After": "0"}, want: Answer{RetryAfter: time.Second, Status: 503, Message: "503 Service Unavailable"}},
		"a date that is over":         {status: 503, header: map[string]string{"Retry-After": now.Add(-time.Hour).Format(http.TimeFormat)}, want: Answer{RetryAfter: time.Second, Status: 503, Message: "503 Service Unavailable"}},
		"503 waits at most 5 minutes": {status: 503, header: map[string]string{"Retry-After": "3600"}, want: Answer{RetryAfter: 5 * time.Minute, Status: 503, Message: "503 Service Unavailable"}},
		"a date that is far ahead":    {status: 503, header: map[string]string{"Retry-After": now.Add(time.Hour).Format(http.TimeFormat)}, want: Answer{RetryAfter: 5 * time.Minute, Status: 503, Message: "503 Service Unavailable"}},
		"a number too large":          {status: 503, header: map[string]string{"Retry-After": "99999999999999999999"}, want: Answer{RetryAfter: 5 * time.Minute, Status: 503, Message: "503 Service Unavailable"}},
		"what is neither":             {status: 503, header: map[string]string{"Retry-After": "soon"}, want: Answer{RetryAfter: 5 * time.Second, Status: 503, Message: "503 Service Unavailable"}},
		"a redirect fails":            {status: 307, header: map[string]string{"Location": "/elsewhere"}, wantFail: "the server answered 307 Temporary Redirect"},
		"so does a malformed one":     {status: 302, header: map[string]string{"Location": "https://a b/"}, wantFail: "the server answered 302 Found"},
		"304 fails":                   {status: 304, wantFail: "the server answered 304 Not Modified"},
		"404 fails":                   {status: 404, body: "no such queue", wantFail: "the server answered 404 Not Found: no such queue"},
		"500 fails with the end":      {status: 500, body: strings.Repeat("x", 2000) + " out of disk", wantFail: "the server answered 500 Internal Server Error: " + strings.Repeat("x", 1024-12) + " out of disk"},
		"a status without a name":     {status: 599, wantFail: "the server answered 599"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			port, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				for key, value := range tc.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			got, err := newClient(t, options(t)).Do(t.Context(), Call{
				Namespace: "shop", Method: "POST", URL: "https://hooks.example.com:" + port + "/do?x=1#y", CA: ca,
			})
			var failed *StatusError
			switch {
			case tc.wantRefused != "":
				if diff := cmp.Diff(tc.wantRefused, reasonOf(t, err)); diff != "" {
					t.Errorf("reason (-want +got):\n%s", diff)
				}
			case tc.wantFail != "":
				if !errors.As(err, &failed) || failed.Status != tc.status {
					t.Fatalf("got %v, want a *StatusError with %d", err, tc.status)
				}
				if diff := cmp.Diff(tc.wantFail, err.Error()); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
			case err != nil:
				t.Fatal(err)
			}
			tc.want.Poll = strings.ReplaceAll(tc.want.Poll, "PORT", port)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if calls.Load() != 1 {
				t.Errorf("the server was asked %d times", calls.Load())
			}
		})
	}
}

// sent is what a server received.
type sent struct {
	Method, Host, Path, Body, Token, Agent, ServerName string
	Length                                             int64
}

func TestWhatIsSent(t *testing.T) {
	var got sent
	handler := func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		host, _, _ := net.SplitHostPort(r.Host)
		got = sent{Method: r.Method, Host: host, Path: r.RequestURI, Body: string(body), Token: r.Header.Get("Authorization"), Agent: r.UserAgent(), Length: r.ContentLength}
		if r.TLS != nil {
			got.ServerName = r.TLS.ServerName
			if r.TLS.Version < 0x0303 {
				t.Errorf("TLS version %x", r.TLS.Version)
			}
		}
	}
	port, ca := serve(t, handler)
	plain := servePlain(t, handler)
	cases := map[string]struct {
		call Call
		want sent
	}{
		"to a host by https": {
			Call{Method: "PUT", URL: "https://hooks.example.com:" + port + "/a%2fb?c=d", Body: []byte("{}"), CA: ca, Header: http.Header{"authorization": {"Bearer x\n"}}},
			sent{Method: "PUT", Host: "hooks.example.com", Path: "/a%2fb?c=d", Body: "{}", Token: "Bearer x", Agent: "drawbridge-hook", ServerName: "hooks.example.com", Length: 2},
		},
		"to a host with a final dot": {
			Call{Method: "GET", URL: "https://hooks.example.com.:" + port + "/", CA: ca},
			sent{Method: "GET", Host: "hooks.example.com.", Path: "/", Agent: "drawbridge-hook", ServerName: "hooks.example.com"},
		},
		"to an address by https": {
			Call{Method: "DELETE", URL: "https://127.0.0.1:" + port + "/", CA: ca, Header: http.Header{"User-Agent": {"me"}}},
			sent{Method: "DELETE", Host: "127.0.0.1", Path: "/", Agent: "me"},
		},
		"to the pod by http": {
			Call{Method: "POST", URL: "http://127.0.0.1:" + plain, PodIPs: []string{"127.0.0.1"}},
			sent{Method: "POST", Host: "127.0.0.1", Path: "/", Agent: "drawbridge-hook"},
		},
		"to a Service by http": {
			Call{Method: "POST", URL: "http://db.shop.svc:" + plain + "/flush"},
			sent{Method: "POST", Host: "db.shop.svc", Path: "/flush", Agent: "drawbridge-hook"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got = sent{}
			tc.call.Namespace = "shop"
			if _, err := newClient(t, options(t)).Do(t.Context(), tc.call); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	cases := map[string]struct {
		call Call
		want string
	}{
		"a method":                                    {Call{Method: "CONNECT", URL: "https://hooks.example.com/"}, `the method is "CONNECT": allowed are GET, PUT, POST, PATCH, DELETE`},
		"no method":                                   {Call{URL: "https://hooks.example.com/"}, `the method is "": allowed are GET, PUT, POST, PATCH, DELETE`},
		"a host":                                      {Call{Method: "POST", URL: "https://hooks.example.com/", Header: http.Header{"HOST": {"x"}}}, "the header Host is set by the connection: leave it out"},
		"a length":                                    {Call{Method: "POST", URL: "https://hooks.example.com/", Header: http.Header{"content-length": {"9"}}}, "the header Content-Length is set by the connection: leave it out"},
		"an encoding of the message":                  {Call{Method: "POST", URL: "https://hooks.example.com/", Header: http.Header{"Transfer-Encoding": {"chunked"}}}, "the header Transfer-Encoding is set by the connection: leave it out"},
		"an upgrade":                                  {Call{Method: "POST", URL: "https://hooks.example.com/", Header: http.Header{"Upgrade": {"h2c"}}}, "the header Upgrade is set by the connection: leave it out"},
		"a header for proxies":                        {Call{Method: "POST", URL: "https://hooks.example.com/", Header: http.Header{"proxy-authorization": {"x"}}}, "the header Proxy-Authorization is set by the connection: leave it out"},
		"a name with a refused address":               {Call{Method: "POST", URL: "https://metadata.example.com/"}, "the host metadata.example.com has the address 169.254.169.254, which is link-local: " + allowed},
		"a name of the API server":                    {Call{Method: "POST", URL: "https://api.example.com/"}, "the host api.example.com has the address 10.96.0.1, which is of the API server or of Drawbridge: " + allowed},
		"the API server's address":                    {Call{Method: "POST", URL: "https://10.96.0.1/"}, "the host 10.96.0.1 has the address 10.96.0.1, which is of the API server or of Drawbridge: " + allowed},
		"a pod with the address of its node":          {Call{Method: "POST", URL: "http://192.0.2.1:10250/", PodIPs: []string{"192.0.2.1"}, NodeIPs: []string{"192.0.2.1"}}, "the host 192.0.2.1 has the address 192.0.2.1, which is of the pod's node: " + allowed},
		"a Service with a refused address":            {Call{Method: "POST", URL: "http://bad/"}, "the host bad has the address 169.254.169.254, which is link-local: " + allowed},
		"a Service with a good and a refused address": {Call{Method: "POST", URL: "http://half/"}, "the host half has the address ::1, which is of loopback: " + allowed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			metadataIP, api := netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("10.96.0.1")
			o.Resolver = (&dns{answers: map[string][]netip.Addr{"metadata.example.com": {metadataIP}, "api.example.com": {api}}}).resolver(t)
			o.Services = fixedServices{"shop/bad": {metadataIP}, "shop/half": {loopback, netip.IPv6Loopback()}}
			o.Denied = func(context.Context) ([]netip.Addr, error) { return []netip.Addr{api}, nil }
			c := newClient(t, o)
			c.dial = func(_ context.Context, _, address string) (net.Conn, error) {
				t.Errorf("%s is dialed", address)
				return nil, io.EOF
			}
			tc.call.Namespace = "shop"
			_, err := c.Do(t.Context(), tc.call)
			var refusal *RefusedError
			if !errors.As(err, &refusal) {
				t.Fatalf("got %v, want a *RefusedError", err)
			}
			if diff := cmp.Diff(tc.want, refusal.Reason); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

// The address that was checked is the one that is dialed: each call asks the DNS once.
// When the answer has changed, the next call is refused.
func TestAnswerOfTheDNSThatChanges(t *testing.T) {
	port, ca := serve(t, func(http.ResponseWriter, *http.Request) {})
	names := &dns{answers: map[string][]netip.Addr{"hooks.example.com": {loopback, netip.MustParseAddr("127.0.0.2")}}}
	o := options(t)
	o.Resolver = names.resolver(t)
	c := newClient(t, o)
	call := Call{Namespace: "shop", Method: "POST", URL: "https://hooks.example.com:" + port + "/", CA: ca}
	if _, err := c.Do(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	_, err := c.Do(t.Context(), call)
	if diff := cmp.Diff("the host hooks.example.com has the address 127.0.0.2, which is of loopback", reasonOf(t, err)); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"hooks.example.com", "hooks.example.com"}, names.questions()); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// Nothing is sent by way of somebody else. (The environment is read once in a process, so
// that a test cannot set it.)
func TestNoProxy(t *testing.T) {
	transport, err := newClient(t, options(t)).transport(Call{}, route{})
	if err != nil {
		t.Fatal(err)
	}
	if transport.Proxy != nil {
		t.Error("a proxy may be used")
	}
}

// noting notes what is asked of a resolver.
type noting struct {
	Resolver
	asked []string
}

func (n *noting) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	n.asked = append(n.asked, host)
	return n.Resolver.LookupNetIP(ctx, network, host)
}

// Names of Services are never asked of the DNS. Others have a final dot, so that no search
// list completes them.
func TestWhatIsAskedOfTheDNS(t *testing.T) {
	names := &noting{Resolver: (&dns{}).resolver(t)}
	o := options(t)
	o.Resolver = names
	c := newClient(t, o)
	for _, url := range []string{"http://nothing/", "https://nothing.shop/", "https://nothing.shop.svc.cluster.local/", "https://db.bank/"} {
		if _, err := c.Do(t.Context(), Call{Namespace: "shop", Method: "GET", URL: url}); err == nil {
			t.Errorf("%s was reached", url)
		}
	}
	if diff := cmp.Diff([]string{"db.bank."}, names.asked); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

func TestServersThatAreNotVerified(t *testing.T) {
	port, ca := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	cases := map[string]struct {
		call Call
		want string
	}{
		"by the system's certificates": {Call{URL: "https://hooks.example.com:" + port}, "certificate signed by unknown authority"},
		"of another name":              {Call{URL: "https://db:" + port, CA: ca}, "not db"},
		"with a CA that is none":       {Call{URL: "https://hooks.example.com:" + port, CA: []byte("x")}, "the CA has no certificate in PEM"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.call.Namespace, tc.call.Method = "shop", "POST"
			_, err := newClient(t, options(t)).Do(t.Context(), tc.call)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Addresses that may have to be refused are not known: nobody is asked.
func TestDeniedFails(t *testing.T) {
	port, ca := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	o := options(t)
	unknown := errors.New("no endpoints")
	o.Denied = func(context.Context) ([]netip.Addr, error) { return nil, unknown }
	_, err := newClient(t, o).Do(t.Context(), Call{Namespace: "shop", Method: "POST", URL: "https://hooks.example.com:" + port, CA: ca})
	if !errors.Is(err, unknown) {
		t.Errorf("got %v, want %v", err, unknown)
	}
}

func TestBodies(t *testing.T) {
	t.Run("more than is read", func(t *testing.T) {
		port, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for range 2 * maxBody / 1024 {
				_, _ = io.WriteString(w, strings.Repeat("a", 1024))
			}
			_, _ = io.WriteString(w, "the end")
		})
		got, err := newClient(t, options(t)).Do(t.Context(), Call{Namespace: "shop", Method: "POST", URL: "https://hooks.example.com:" + port, CA: ca})
		if err != nil || got.Message != "200 OK: "+strings.Repeat("a", maxMessage) {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("one that never ends", func(t *testing.T) {
		port, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		o := options(t)
		clock := testclock.NewFakeClock(now)
		o.Clock = clock
		c := newClient(t, o)
		got := make(chan Answer, 1)
		go func() {
			answer, err := c.Do(t.Context(), Call{Namespace: "shop", Method: "POST", URL: "https://hooks.example.com:" + port, CA: ca})
			if err != nil {
				t.Error(err)
			}
			got <- answer
		}()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !clock.HasWaiters() {
			<-tick.C
		}
		clock.Step(bodyTimeout)
		if answer := <-got; !answer.Done || !strings.HasPrefix(answer.Message, "200 OK") {
			t.Errorf("got %v", answer)
		}
	})
}

func TestContextThatEnds(t *testing.T) {
	asked := make(chan struct{})
	port, ca := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	why := errors.New("the eviction was canceled")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(why)
	}()
	_, err := newClient(t, options(t)).Do(ctx, Call{Namespace: "shop", Method: "POST", URL: "https://hooks.example.com:" + port, CA: ca})
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestRequiredOptions(t *testing.T) {
	_, err := New(Options{})
	const want = "client of HTTP hooks: Clock is not set\nDenied is not set\nServices is not set"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
