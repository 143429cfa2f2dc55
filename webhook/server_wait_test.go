package webhook

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// pipes is a listener for connections within the process, whose time can be made up.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// echo answers with what it has read of the body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s, error %v", body, err)
}

// dialed starts the server for a handler, in a bubble of its own time, and is a connection to it
// after the handshake.
func dialed(t *testing.T, handler http.Handler) net.Conn {
	t.Helper()
	certificate, roots := newCertificate(t)
	s := &Server{Leaving: func() bool { return false }, Log: logr.Discard()}
	server := s.server(handler, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}})
	listener := make(pipes, 1)
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	ours, theirs := net.Pipe()
	listener <- theirs
	conn := tls.Client(ours, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		close(listener)
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server: %v", err)
		}
	})
	return conn
}

// answerOn sends a call and returns the answer to it.
func answerOn(conn net.Conn, call string) (string, error) {
	if _, err := io.WriteString(conn, call); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// An API server dials for a call that finds no free connection, and keeps the new one for later if
// another became free first. It gives up what it does not need after 90 seconds. If we were faster,
// we would close it under a call that has just begun: the caller's eviction would fail with 500.
func TestAConnectionMayWaitForItsCallsLongerThanAnAPIServerKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := dialed(t, http.HandlerFunc(echo))
		for _, call := range []string{"first", "second"} {
			<-time.After(100 * time.Second) // Of the bubble's time.
			got, err := answerOn(conn, fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(call), call))
			if err != nil || got != call+", error <nil>" {
				t.Fatalf("the %s call after 100 seconds of silence: %q, %v", call, got, err)
			}
		}
	})
}

// What waits for its first byte may take long, what has begun may not.
func TestABodyThatStallsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := dialed(t, http.HandlerFunc(echo))
		<-time.After(100 * time.Second) // Of the bubble's time.
		begun := time.Now()
		got, err := answerOn(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nstalled")
		if err == nil && !strings.Contains(got, "timeout") {
			t.Errorf("got %q, want no whole body", got)
		}
		if took := time.Since(begun); took != callTimeout {
			t.Errorf("given up after %s, want %s", took, callTimeout)
		}
	})
}

// An API server that waits in vain applies its failure policy. So the answer to a review whose body
// stalls comes before that, and does not wait for what is left of the body.
func TestAReviewThatStallsIsDeniedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := dialed(t, newWorld(t, db0().Obj(), n1().Obj()).handler)
		begun, body := time.Now(), reviewOf()
		got, err := answerOn(conn, fmt.Sprintf("POST %s?timeout=10s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", EvictionPath, len(body), body[:300]))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, `"uid":"review-1"`) || !strings.Contains(got, `"code":429`) {
			t.Errorf("answer %s, want 429", got)
		}
		if took := time.Since(begun); took != 9*time.Second {
			t.Errorf("answered after %s, want 9s of the API server's 10s", took)
		}
	})
}
