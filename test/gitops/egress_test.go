//go:build unix

package gitops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// servicePort is the port of every Service that the API server calls here.
const servicePort = "443"

// egress is the way from the API server into the cluster network, which fake nodes have not:
// a proxy, as konnectivity is one. Calls of the Service of the webhook reach a manager on
// this machine, so the chart is installed exactly as its user installs it.
type egress struct {
	// Config is the path of the EgressSelectorConfiguration.
	Config string
	// port of the manager on 127.0.0.1.
	port   atomic.Int64
	server *http.Server
	folder string
}

// newEgress listens until Close.
func newEgress(ctx context.Context) (*egress, error) {
	// Not t.TempDir: the path of a socket is short.
	folder, err := os.MkdirTemp("", "egress-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the socket: %w", err)
	}
	e := &egress{Config: filepath.Join(folder, "egress.yaml"), folder: folder}
	socket := filepath.Join(folder, "socket")
	config := `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport:
        uds:
          udsName: ` + socket + "\n"
	if err := os.WriteFile(e.Config, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration of the egress: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	e.server = &http.Server{Handler: http.HandlerFunc(e.connect), ReadHeaderTimeout: time.Minute}
	go func() { _ = e.server.Serve(listener) }() // Its end is Close.
	return e, nil
}

// Close stops it.
func (e *egress) Close() error { return errors.Join(e.server.Close(), os.RemoveAll(e.folder)) }

// connect joins the connection with the one that the API server asks for.
func (e *egress) connect(w http.ResponseWriter, r *http.Request) {
	target := r.Host
	if _, port, err := net.SplitHostPort(target); err == nil && port == servicePort {
		target = net.JoinHostPort("127.0.0.1", strconv.FormatInt(e.port.Load(), 10))
	}
	var dialer net.Dialer
	to, err := dialer.DialContext(r.Context(), "tcp", target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = to.Close() }()
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = from.Close() }()
	if _, err := io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
