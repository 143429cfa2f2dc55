//go:build unix

package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Service is to replicas what a Service is: every connection goes to one that is ready,
// and what is connected stays connected.
type Service struct {
	inst *Installation

	mu       sync.Mutex
	backends []*backend
	next     int
	lost     []string // When connections found no replica that was ready.
}

type backend struct {
	addr, health string
	ready        bool
}

const (
	// probeEvery is how often readiness is looked at. A kubelet and the endpoints take
	// longer, which the shutdown delay of production is for. Replicas have one of 10 seconds
	// here, because this process may stand still for a while.
	probeEvery  = 100 * time.Millisecond
	dialTimeout = time.Second
)

// NewService listens where the API server calls the webhook, until the test ends. A test
// that starts replicas itself leaves the port to them.
func (i *Installation) NewService(tb testing.TB) *Service {
	tb.Helper()
	s := &Service{inst: i}
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", loopback(i.WebhookPort))
	if err != nil {
		tb.Fatalf("listen in place of the Service: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, s.probe, probeEvery)
	}()
	go s.accept(listener)
	tb.Cleanup(func() {
		cancel()
		if err := listener.Close(); err != nil {
			tb.Error(err)
		}
		<-done
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.lost) > 0 {
			tb.Logf("connections that found no ready replica: %v", s.lost)
		}
	})
	return s
}

// PatientLease is for a replica that leads until it is told to end: one that cannot renew its lease in
// time ends, too, and 10 seconds, the default, are not long on a busy machine.
var PatientLease = []string{"--leader-elect=true", "--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=25s"}

// Replica starts a replica behind the service, which is killed at the end of the test at
// the latest.
func (s *Service) Replica(tb testing.TB, args ...string) *Process {
	tb.Helper()
	ports, err := freePorts(tb.Context(), 2)
	if err != nil {
		tb.Fatal(err)
	}
	b := &backend{addr: loopback(ports[0]), health: loopback(ports[1])}
	s.mu.Lock()
	s.backends = append(s.backends, b)
	s.mu.Unlock()
	p, err := s.inst.StartProcess(tb.Context(), ProcessOptions{HealthAddr: b.health, Args: slices.Concat(PatientLease, []string{
		"--webhook-port=" + strconv.Itoa(ports[0]), "--shutdown-delay=10s",
	}, args)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Kill(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// Serve returns nil when every replica serves the first certificate of the chain, which is
// the content of tls.crt.
func (s *Service) Serve(ctx context.Context, chain []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.backends {
		served, err := servedBy(ctx, b.addr)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(chain, served) {
			return errors.New(b.addr + " serves another certificate")
		}
	}
	return nil
}

// servedBy is the certificate of the server, as PEM.
func servedBy(ctx context.Context, addr string) ([]byte, error) {
	// Who it is, is the question.
	dialer := tls.Dialer{Config: &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), conn.Close()
}

// probe looks at the readiness of all replicas.
func (s *Service) probe(ctx context.Context) {
	s.mu.Lock()
	backends := append([]*backend(nil), s.backends...)
	s.mu.Unlock()
	for _, b := range backends {
		ready, slow := isReady(ctx, b.health)
		if slow {
			continue // A kubelet believes that the third time only.
		}
		s.mu.Lock()
		b.ready = ready
		s.mu.Unlock()
	}
}

// isReady asks a replica whether it is ready; slow if it did not say in time.
func isReady(ctx context.Context, addr string) (ready, slow bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false, false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, ctx.Err() != nil
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK, false
}

// pick returns a ready replica, the next one each time.
func (s *Service) pick() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.backends {
		s.next = (s.next + 1) % len(s.backends)
		if b := s.backends[s.next]; b.ready {
			return b.addr, nil
		}
	}
	return "", errors.New("no replica is ready")
}

func (s *Service) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go s.serve(conn)
	}
}

// serve joins two connections until either ends.
func (s *Service) serve(from net.Conn) {
	defer func() { _ = from.Close() }()
	addr, err := s.pick()
	if err != nil {
		s.mu.Lock()
		s.lost = append(s.lost, time.Now().Format(time.StampMilli))
		s.mu.Unlock()
		return
	}
	to, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
