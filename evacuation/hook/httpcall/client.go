package httpcall

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	// defaultTimeout limits a call whose context has no deadline.
	defaultTimeout = time.Minute
	// connectTimeout limits the connection to one address, and the TLS handshake.
	connectTimeout = 10 * time.Second
	// bodyTimeout limits the reading of a body: what the answer means is known before.
	bodyTimeout = 10 * time.Second
	// maxBody and maxHeader limit what is read of an answer, in bytes.
	maxBody   = 64 << 10
	maxHeader = 64 << 10
)

// methods that may be used, those of an EvacuationHook.
var methods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete}

// Call is one request.
type Call struct {
	// Namespace whose Services may be asked.
	Namespace string
	// PodIPs are those of the pod, which may be asked with http.
	PodIPs []string
	// NodeIPs are those of the pod's node. They are refused, so that a pod in the
	// network of its node opens no way to the kubelet.
	NodeIPs []string
	// Method is GET, PUT, POST, PATCH or DELETE.
	Method string
	// URL to ask.
	URL string
	// Header to send. Line breaks at the ends of values, which files in Secrets often
	// have, are left out.
	Header http.Header
	// Body to send.
	Body []byte
	// CA has the certificates, in PEM, that the server's one is verified with. Empty:
	// those of the system.
	CA []byte
}

// Resolver asks the DNS. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options of a Client.
type Options struct {
	// Services finds the addresses of Services.
	Services Services
	// Denied returns addresses that nobody may ask: those of the API server, and the
	// manager's own. If it fails, so does the call.
	Denied func(ctx context.Context) ([]netip.Addr, error)
	// Resolver asks the DNS. Default: net.DefaultResolver.
	Resolver Resolver
	// Clock tells what a date in Retry-After means.
	Clock clock.Clock
	// Allow are addresses that may be dialed although they would be refused. Only tests
	// set it, whose servers are on loopback.
	Allow []netip.Prefix
}

// Client sends calls. It may be used by several goroutines, and keeps no connections.
type Client struct {
	options Options
	// dial connects to an address, never to a name. Fuzzing looks at what is dialed.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// New returns a Client.
func New(o Options) (*Client, error) {
	if err := controllers.Require("client of HTTP hooks", map[string]bool{
		"Services": o.Services != nil, "Denied": o.Denied != nil, "Clock": o.Clock != nil,
	}); err != nil {
		return nil, err
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	return &Client{options: o, dial: (&net.Dialer{Timeout: connectTimeout}).DialContext}, nil
}

// Do sends one call and says what the answer means. The error is, or wraps, a
// *RefusedError if the call is not allowed, and a *StatusError if the server answered
// with a status that means failure. Every other error is that of a lookup, of the
// connection or of the context. A call without a deadline gets one of a minute.
func (c *Client) Do(ctx context.Context, call Call) (Answer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := c.route(call)
	if err != nil {
		return Answer{}, err
	}
	request, err := newRequest(ctx, call, r.target)
	if err != nil {
		return Answer{}, err
	}
	transport, err := c.transport(call, r)
	if err != nil {
		return Answer{}, err
	}
	// Not a http.Client: that one would follow redirects.
	response, err := transport.RoundTrip(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return Answer{}, fmt.Errorf("%s %s: %w", call.Method, r.target.host, err)
	}
	defer func() { _ = response.Body.Close() }()
	body := c.read(response, cancel)
	return c.answer(response, body, func(location string) error {
		_, err := inspectFor(location, call.Namespace, r.podIPs, c.options.Allow)
		return err
	})
}

// route is where a call may go.
type route struct {
	target  target
	podIPs  []netip.Addr
	nodeIPs []netip.Addr
	// namespace of the Services.
	namespace string
}

func (c *Client) route(call Call) (route, error) {
	if !slices.Contains(methods, call.Method) {
		return route{}, &RefusedError{Reason: fmt.Sprintf("the method is %q: allowed are %s", call.Method, strings.Join(methods, ", "))}
	}
	podIPs, err := addresses("pod", call.PodIPs)
	if err != nil {
		return route{}, err
	}
	nodeIPs, err := addresses("node", call.NodeIPs)
	if err != nil {
		return route{}, err
	}
	t, err := inspectFor(call.URL, call.Namespace, podIPs, c.options.Allow)
	if err != nil {
		return route{}, err
	}
	return route{t, podIPs, nodeIPs, call.Namespace}, nil
}

func newRequest(ctx context.Context, call Call, t target) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, call.Method, t.url.String(), bytes.NewReader(call.Body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, values := range call.Header {
		canonical := http.CanonicalHeaderKey(name)
		if reserved(canonical) {
			return nil, &RefusedError{Reason: fmt.Sprintf("the header %s is set by the connection: leave it out", canonical)}
		}
		for _, value := range values {
			request.Header.Add(canonical, strings.Trim(value, "\r\n"))
		}
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "drawbridge-hook")
	}
	return request, nil
}

// reserved reports whether a header says how a message is delivered, not what it says.
func reserved(canonical string) bool {
	switch canonical {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect":
		return true
	default:
		return strings.HasPrefix(canonical, "Proxy-")
	}
}

// certificates returns those to verify servers with, nil for the system's.
func certificates(pem []byte) (*x509.CertPool, error) {
	if len(pem) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("the CA has no certificate in PEM")
	}
	return pool, nil
}
