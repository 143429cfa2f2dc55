package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// served is a server with the webhooks of a world behind its authenticator.
type served struct {
	t       *testing.T
	address string
	roots   *x509.CertPool
	dropped atomic.Int32
	leaving atomic.Bool
}

// newCertificate is one for localhost that signs itself.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

func startServer(t *testing.T, w *world) *served {
	t.Helper()
	certificate, roots := newCertificate(t)
	s := &served{t: t, roots: roots}
	var listen net.ListenConfig
	free, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	server := NewServer("127.0.0.1", port)
	server.TLS = func(c *tls.Config) { c.Certificates = []tls.Certificate{certificate} }
	server.ShutdownTimeout, server.Log = time.Second, logr.Discard()
	server.Dropped, server.Leaving = func() { s.dropped.Add(1) }, s.leaving.Load
	d := newGuardedMux(w)
	if err := Register(server, d.Authenticator, d.bodies, w.handler, statusHandler(t0), &ProbeHandler{Log: logr.Discard()}); err != nil {
		t.Fatal(err)
	}
	s.address = server.Address

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	for server.StartedChecker()(nil) != nil {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	return s
}

// connect opens a connection; nil if the server has closed it.
func (s *served) connect() net.Conn {
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		return nil
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call is a review of an eviction by an API server, over a connection of its own.
func (s *served) call() error {
	conn := s.connect()
	if conn == nil {
		return errors.New("no connection")
	}
	_, err := callOn(conn)
	return err
}

// callOn is a review of an eviction by an API server. It reports whether the server wants
// to keep the connection.
func callOn(conn net.Conn) (keep bool, err error) {
	body := reviewOf()
	if _, err := fmt.Fprintf(conn, "POST %s/%s?timeout=5s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", EvictionPath, goodToken, len(body), body); err != nil {
		return false, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	var got bytes.Buffer
	if _, err := got.ReadFrom(response.Body); err != nil {
		return false, err
	}
	if !strings.Contains(got.String(), "accepted") {
		return false, fmt.Errorf("%s: %s", response.Status, got.String())
	}
	return !response.Close, nil
}

// An API server does not send a call twice whose connection ended under it. So a replica
// that is about to end lets go of connections while nothing is on its way on them.
func TestAReplicaThatLeavesKeepsNoConnection(t *testing.T) {
	s := startServer(t, newWorld(t, db0().Obj(), n1().Obj()))
	conn := s.connect()
	if conn == nil {
		t.Fatal("no connection")
	}
	for _, leaving := range []bool{false, false, true} {
		s.leaving.Store(leaving)
		keep, err := callOn(conn)
		if err != nil {
			t.Fatal(err)
		}
		if keep == leaving {
			t.Errorf("leaving %t: the connection is kept: %t", leaving, keep)
		}
	}
}

// Four hundred strangers send a mebibyte each and stall. The memory stays far below the
// chart's limit of 512 Mi, and API servers are answered meanwhile.
func TestStalledConnectionsNeitherFillTheMemoryNorKeepAPIServersOut(t *testing.T) {
	const strangers, mebibyte = 400, 1 << 20
	padding := bytes.Repeat([]byte("x"), mebibyte)
	front := string(reviewOf()[:200])
	cases := map[string]string{
		"with a header that never ends":   "POST " + EvictionPath + " HTTP/1.1\r\nHost: localhost\r\nX: ",
		"with a body and no token":        "POST " + EvictionPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n" + front,
		"with a body and a wrong token":   "POST " + EvictionPath + "/" + strings.Repeat("f", 64) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n" + front,
		"with a body in chunks":           "POST " + EvictionPath + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n" + front,
		"with a body that a thief begins": "POST " + EvictionPath + "/" + goodToken + "?timeout=30s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n" + front,
	}
	for name, request := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, db0().Obj(), n1().Obj())
			s := startServer(t, w)
			var before runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range strangers {
				conn := s.connect()
				if conn == nil {
					continue // Closed at once, to make room.
				}
				// What is not taken is not sent: errors and short writes are the point.
				if err := conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Write([]byte(request)); err == nil {
					_, _ = conn.Write(padding)
				}
				if i%100 == 99 {
					if err := s.call(); err != nil {
						t.Errorf("an API server is not answered while %d strangers stall: %v", i+1, err)
					}
				}
			}
			var after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&after)
			// Clients and server are in this process; both have buffers for each connection.
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 128*mebibyte {
				t.Errorf("%d connections hold %d MiB", strangers, grown/mebibyte)
			} else {
				t.Logf("%d connections hold %d KiB, %d were closed to make room", strangers, grown>>10, s.dropped.Load())
			}
		})
	}
}
