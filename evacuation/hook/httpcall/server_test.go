package httpcall

import (
	"context"
	"encoding/binary"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	testclock "k8s.io/utils/clock/testing"
)

// dns is a DNS server on loopback. Each name has a list of answers, for one question
// after the other; the last one stays.
type dns struct {
	mu      sync.Mutex
	answers map[string][]netip.Addr
	asked   []string
}

// resolver begins the server, and returns a real resolver that asks nothing else.
func (d *dns) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	go func() {
		defer close(ended)
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(d.answer(buffer[:n]), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// questions returns the names whose addresses were asked for.
func (d *dns) questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// answer answers one question, for which a message has a header of 12 bytes, the labels
// with their lengths, a zero, the type and the class.
func (d *dns) answer(question []byte) []byte {
	var labels []string
	at := 12
	for question[at] != 0 {
		length := int(question[at])
		labels = append(labels, string(question[at+1:at+1+length]))
		at += 1 + length
	}
	isA := binary.BigEndian.Uint16(question[at+1:]) == 1
	response := append([]byte{}, question[:at+5]...)
	copy(response[2:], []byte{0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	if !isA {
		return response
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	name := strings.Join(labels, ".")
	d.asked = append(d.asked, name)
	left := d.answers[name]
	if len(left) == 0 {
		response[3] = 3 // No such name.
		return response
	}
	if len(left) > 1 {
		d.answers[name] = left[1:]
	}
	response[7] = 1
	response = append(response, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(response, left[0].AsSlice()...)
}

// fixedServices are the Services of a test, by NAMESPACE/NAME.
type fixedServices map[string][]netip.Addr

func (s fixedServices) Addresses(_ context.Context, namespace, name string) ([]netip.Addr, error) {
	if found, ok := s[namespace+"/"+name]; ok {
		return found, nil
	}
	return nil, &net.AddrError{Err: "no such Service", Addr: name}
}

var loopback = netip.MustParseAddr("127.0.0.1")

// options are those of a client that reaches servers of the test, by the names
// hooks.example.com and the Service shop/db.
func options(t *testing.T) Options {
	t.Helper()
	names := &dns{answers: map[string][]netip.Addr{"hooks.example.com": {loopback}}}
	return Options{
		Services: fixedServices{"shop/db": {loopback}},
		Denied:   func(context.Context) ([]netip.Addr, error) { return nil, nil },
		Resolver: names.resolver(t),
		Clock:    testclock.NewFakeClock(now),
		Allow:    []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}
}

func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve begins a TLS server, and returns its port and its certificate, which is for
// example.com, *.example.com and 127.0.0.1.
func serve(t *testing.T, handler http.HandlerFunc) (string, []byte) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	return portOfServer(t, server), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func servePlain(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return portOfServer(t, server)
}

func portOfServer(t *testing.T, server *httptest.Server) string {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}
