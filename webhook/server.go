package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	// callTimeout bounds a whole call, its body and its answer included, and the handshake
	// of a connection. No webhook may take longer than 30 seconds (timeoutSeconds).
	callTimeout = 35 * time.Second
	// idleTimeout is longer than the 90 seconds after which an API server gives up a
	// connection it does not need (client-go: transport defaults): it must be the one that
	// closes it, or a call may meet the end. That goes for a connection that had no call yet,
	// too: client-go dials when it finds none free, and keeps the new one if a used one was
	// faster. Strangers may stall as long; their number is limited.
	idleTimeout = 3 * time.Minute
	// maxHeader is the largest header of a call, in bytes.
	maxHeader = 16 << 10
)

// Server serves the webhooks. It is controller-runtime's as far as handlers and their
// metrics go; connections have bounds here, which that has not.
type Server struct {
	ctrlwebhook.Server

	// Address to listen on, host:port.
	Address string
	// TLS changes the configuration, which must get a certificate.
	TLS func(*tls.Config)
	// ShutdownTimeout is how long calls may take to be answered at the end.
	ShutdownTimeout time.Duration
	// Leaving reports whether this replica is about to end. It asks API servers then to
	// call on another connection from now on.
	Leaving func() bool
	// Dropped is called for each connection that was closed to make room for another one.
	Dropped func()
	Log     logr.Logger

	listening atomic.Bool
}

var _ ctrlwebhook.Server = &Server{}

// NewServer returns a server for an address of this machine; all fields but Server and
// Address are still to be set.
func NewServer(host string, port int) *Server {
	return &Server{
		Server:  ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port}),
		Address: net.JoinHostPort(host, strconv.Itoa(port)),
	}
}

// StartedChecker reports whether the server listens.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.listening.Load() {
			return errors.New("the webhooks are not served yet")
		}
		return nil
	}
}

// Start serves until the context ends, and then until the calls that have begun are
// answered. The certificate is asked for with each handshake.
func (s *Server) Start(ctx context.Context) error {
	if err := controllers.Require("server of the webhooks", map[string]bool{"TLS": s.TLS != nil, "Leaving": s.Leaving != nil, "Dropped": s.Dropped != nil}); err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for API servers: %w", err)
	}
	limited := &limitedListener{Listener: listener, all: &connections{dropped: s.Dropped}}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	s.TLS(config)
	server := s.server(s.WebhookMux(), config)
	s.Log.Info("Serving the webhooks", "address", listener.Addr().String())
	s.listening.Store(true)
	defer s.listening.Store(false)
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(limited, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the webhooks: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		// A stalled call must not keep us from a clean shutdown.
		s.Log.Info("Calls of the webhooks were not answered before the end", "reason", err.Error())
		if err := server.Close(); err != nil {
			return fmt.Errorf("stop serving the webhooks: %w", err)
		}
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the webhooks: %w", err)
	}
	return nil
}

// server serves a handler with bounds for what a connection may take.
func (s *Server) server(to http.Handler, config *tls.Config) *http.Server {
	// API servers speak HTTP/1.1 to webhooks (kubernetes/apiserver: pkg/util/webhook/client.go).
	// A connection of HTTP/2 would hold a mebibyte of each body that nobody reads.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:   bounded(s.drainConnections(to)),
		Protocols: &protocols,
		// Before the first call, net/http counts it from the handshake on, not from the first byte.
		ReadHeaderTimeout: idleTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      callTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       withConnection,
		ErrorLog:          log.New(lines{s.Log}, "", 0),
		TLSConfig:         config,
	}
}

// bounded ends the reading of a body that takes too long. The server's ReadTimeout would count the
// time before the first call of a connection.
func bounded(to http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		readUntil(ctx, w)
		to.ServeHTTP(w, r)
	})
}

// drainConnections makes API servers leave a replica that is about to stop. Stopping closes idle
// connections, and a call that is just being sent on one of them is lost: client-go does not
// repeat a POST. So each connection is closed with its last answer.
func (s *Server) drainConnections(to http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Leaving() {
			w.Header().Set("Connection", "close")
		}
		to.ServeHTTP(w, r)
	})
}

// lines writes net/http's errors, mainly failed handshakes, to our log.
type lines struct{ log logr.Logger }

func (l lines) Write(line []byte) (int, error) {
	l.log.V(1).Info(strings.TrimSpace(string(line)))
	return len(line), nil
}
