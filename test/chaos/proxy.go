//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// dialTimeout bounds how long the proxy tries a replica.
const dialTimeout = 500 * time.Millisecond

// proxy stands before the webhooks of the replicas as a Service does: each connection
// goes to the next of them, or to another one if that refuses. It can be slow, and
// it can be cut. TLS goes through it untouched.
type proxy struct {
	listener net.Listener
	replicas []int // Ports of 127.0.0.1.

	mu      sync.Mutex
	next    int
	latency time.Duration
	cut     bool
	open    map[net.Conn]struct{}

	ctx    context.Context //nolint:containedctx // The life of the proxy.
	cancel context.CancelFunc
	group  sync.WaitGroup
}

func startProxy(port int, replicas []int) (*proxy, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", loopback(port))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listen before the webhook: %w", err)
	}
	p := &proxy{listener: listener, replicas: replicas, open: map[net.Conn]struct{}{}, ctx: ctx, cancel: cancel}
	p.group.Go(p.accept)
	return p, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// slow sets how long what the API server asks is on its way.
func (p *proxy) slow(latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = latency
}

// setCut breaks all connections, and refuses new ones or no longer does.
func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		p.breakAll()
	}
}

func (p *proxy) breakAll() {
	for conn := range p.open {
		_ = conn.Close() // It is to break.
	}
}

func (p *proxy) close() error {
	p.cancel()
	err := p.listener.Close()
	p.setCut(true)
	p.group.Wait()
	return err
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // Closed.
		}
		p.group.Go(func() { p.serve(conn) })
	}
}

// serve carries one connection.
func (p *proxy) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }() // The other side may have closed it.
	replica, err := p.dial()
	if err != nil {
		return
	}
	defer func() { _ = replica.Close() }() // As above.
	if !p.keep(conn, replica) {
		return
	}
	defer p.forget(conn, replica)
	var group sync.WaitGroup
	group.Go(func() {
		p.carry(replica, conn)
		_ = replica.Close() // Ends the other direction.
	})
	_, _ = io.Copy(conn, replica) // It breaks when either side does.
	_ = conn.Close()
	group.Wait()
}

var errNobody = errors.New("no replica answers")

func (p *proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	first := p.next
	p.next++
	p.mu.Unlock()
	dialer := net.Dialer{Timeout: dialTimeout}
	for i := range p.replicas {
		conn, err := dialer.DialContext(p.ctx, "tcp", loopback(p.replicas[(first+i)%len(p.replicas)]))
		if err == nil {
			return conn, nil
		}
	}
	return nil, errNobody
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, conn := range conns {
		p.open[conn] = struct{}{}
	}
	return true
}

func (p *proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.open, conn)
	}
}

// carry copies what the API server sends, late.
func (p *proxy) carry(to io.Writer, from io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			latency := p.latency
			p.mu.Unlock()
			if !rest(p.ctx, latency) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// rest waits, and reports whether ctx still lives.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
