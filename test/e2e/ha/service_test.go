//go:build unix

package ha

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// service is to the replicas what a Service is: every connection goes to one that is
// ready, and what is connected stays connected.
type service struct {
	mu       sync.Mutex
	backends []*backend
	next     int
	lost     []string // When connections found no replica that was ready.
}

type backend struct {
	addr, health string
	ready        bool
}

// probeEvery is how often readiness is looked at. A kubelet and the endpoints take
// longer, which the shutdown delay of production is for.
const probeEvery = 100 * time.Millisecond

// newService listens where the API server calls the webhook, until the test ends.
func newService(t *testing.T, inst *manager.Installation) *service {
	t.Helper()
	s := &service{}
	var config net.ListenConfig
	listener := must(config.Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(inst.WebhookPort))))(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, s.probe, probeEvery)
	}()
	go s.accept(listener)
	t.Cleanup(func() {
		cancel()
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		<-done
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.lost) > 0 {
			t.Logf("connections that found no ready replica: %v", s.lost)
		}
	})
	return s
}

// replica starts a replica behind the service.
func (s *service) replica(t *testing.T, inst *manager.Installation, args ...string) *manager.Process {
	t.Helper()
	port := must(manager.FreePort(t.Context()))(t)
	health := must(manager.FreePort(t.Context()))(t)
	b := &backend{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), health: net.JoinHostPort("127.0.0.1", strconv.Itoa(health))}
	s.mu.Lock()
	s.backends = append(s.backends, b)
	s.mu.Unlock()
	return startWith(t, inst, manager.ProcessOptions{HealthAddr: b.health, Args: append([]string{
		"--webhook-port=" + strconv.Itoa(port), "--leader-elect=true", "--shutdown-delay=2s",
	}, args...)})
}

// probe looks at the readiness of all replicas.
func (s *service) probe(ctx context.Context) {
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
func (s *service) pick() (string, error) {
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

func (s *service) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go s.serve(conn)
	}
}

// serve joins two connections until either ends.
func (s *service) serve(from net.Conn) {
	defer func() { _ = from.Close() }()
	addr, err := s.pick()
	if err != nil {
		s.mu.Lock()
		s.lost = append(s.lost, time.Now().Format(time.StampMilli))
		s.mu.Unlock()
		return
	}
	to, err := net.DialTimeout("tcp", addr, time.Second)
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

// metric reads one series of a replica's metrics; 0 if there is none.
func metric(ctx context.Context, p *manager.Process, series string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.MetricsURL, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// leader tells which of the replicas leads.
func leader(t *testing.T, replicas ...*manager.Process) (leads, other *manager.Process) {
	t.Helper()
	eventually(t, "a leader", func(ctx context.Context) error {
		for i, p := range replicas {
			value, err := metric(ctx, p, `leader_election_master_status{name="drawbridge-leader"}`)
			if err != nil {
				return err
			}
			if value == 1 {
				leads, other = p, replicas[(i+1)%len(replicas)]
				return nil
			}
		}
		return fmt.Errorf("none of %d leads", len(replicas))
	})
	return leads, other
}
