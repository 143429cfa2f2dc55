package webhook

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
)

const (
	// maxStrangers is how many unauthenticated connections may be open. An API server
	// authenticates some milliseconds after the handshake. The oldest one is closed to
	// make room for the next.
	maxStrangers = 128
	// maxKnown is how many connections of API servers are kept open between calls. Each
	// has one call at a time, and a control plane has some hundreds of them.
	maxKnown = 1024
)

// connections are those of the webhooks' server. Anyone who reaches the port may open
// any number and send nothing: they must neither fill our memory nor keep API servers
// out.
type connections struct {
	// dropped is called for each connection that was closed to make room.
	dropped func()

	mu        sync.Mutex
	strangers list.List // Of *connection, oldest first.
	known     int
}

// connection is one of them.
type connection struct {
	net.Conn
	all *connections
	// place among the strangers; nil when it is known, or closed.
	place *list.Element
	known bool
}

// limitedListener accepts connections and keeps count of them.
type limitedListener struct {
	net.Listener
	all *connections
}

// Accept waits for the next connection.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.all.add(conn)
}

// add takes in a stranger, who may push out the oldest.
func (a *connections) add(conn net.Conn) (net.Conn, error) {
	c := &connection{Conn: conn, all: a}
	a.mu.Lock()
	var oldest *connection
	if a.strangers.Len() >= maxStrangers {
		oldest = a.strangers.Remove(a.strangers.Front()).(*connection)
		oldest.place = nil
	}
	c.place = a.strangers.PushBack(c)
	a.mu.Unlock()
	if oldest != nil {
		a.dropped()
		// The server notices, and closes it again. There is no one to report an error
		// to.
		_ = oldest.Conn.Close()
	}
	return c, nil
}

// trust marks a connection as an API server's. It reports whether there is room to keep
// it open after its call.
func (c *connection) trust() (keep bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.known {
		return true
	}
	if c.place == nil || c.all.known >= maxKnown {
		return false
	}
	c.all.strangers.Remove(c.place)
	c.place, c.known = nil, true
	c.all.known++
	return true
}

// Close ends the connection.
func (c *connection) Close() error {
	c.all.mu.Lock()
	if c.place != nil {
		c.all.strangers.Remove(c.place)
		c.place = nil
	}
	if c.known {
		c.known = false
		c.all.known--
	}
	c.all.mu.Unlock()
	return c.Conn.Close()
}

type connectionKey struct{}

// withConnection is a server's ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// trusted marks the connection of a request as an API server's. Without our connection,
// as in tests, there is nothing to limit.
func trusted(ctx context.Context) (keep bool) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	return !ok || c.trust()
}
