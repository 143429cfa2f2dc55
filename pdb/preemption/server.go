package preemption

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// headerTimeout and idleTimeout are for connections: the scheduler keeps one open
	// between calls.
	headerTimeout = 5 * time.Second
	idleTimeout   = 5 * time.Minute
	// writeGrace is how long writing the answer may take, after Timeout.
	writeGrace = 5 * time.Second
	// maxHeader is the largest header of a request, in bytes.
	maxHeader = 16 << 10
)

// Server is the extender's own HTTPS server. It asks for client certificates, which
// the handler checks.
type Server struct {
	// Address to listen on, host:port.
	Address string
	// Handler answers at PreemptPath.
	Handler *Handler
	// GetCertificate is the hook of a tls.Config.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ShutdownTimeout is how long questions may take to be answered at the end.
	ShutdownTimeout time.Duration
}

var _ manager.LeaderElectionRunnable = &Server{}

// NeedLeaderElection is false: every replica answers.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends, and then until the questions that have begun
// are answered.
func (s *Server) Start(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for the scheduler: %w", err)
	}
	// One call at a time does not need HTTP/2, whose servers strangers can keep busy.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	mux := http.NewServeMux()
	mux.Handle(PreemptPath, s.Handler)
	server := &http.Server{
		Handler:           mux,
		Protocols:         &protocols,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.Handler.Timeout,
		WriteTimeout:      s.Handler.Timeout + writeGrace,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(lines{s.Handler.Log}, "", 0),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.GetCertificate,
			ClientAuth:     tls.RequestClientCert,
		},
	}
	s.Handler.Log.Info("Serving the scheduler", "address", listener.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the scheduler: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		return errors.Join(fmt.Errorf("stop serving the scheduler: %w", err), server.Close())
	}
	return nil
}

// lines writes net/http's errors, mainly failed handshakes, to our log.
type lines struct{ log logr.Logger }

func (l lines) Write(line []byte) (int, error) {
	l.log.V(1).Info(strings.TrimSpace(string(line)))
	return len(line), nil
}
