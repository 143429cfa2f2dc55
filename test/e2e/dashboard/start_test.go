//go:build unix

package dashboard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	plugin "github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// served is a dashboard that runs.
type served struct {
	// first is the address with the token, as it was printed.
	first string
	// program is nil if it runs in this process.
	program *cluster.Program
}

// at is the address of a page.
func (s served) at(path string) string {
	u, err := url.Parse(s.first)
	if err != nil {
		return "about:blank"
	}
	return "http://" + u.Host + path
}

var printedURL = regexp.MustCompile(`http://(127\.0\.0\.1|localhost):[0-9]+/\S*`)

// olga is on call.
func olga(t *testing.T) string {
	t.Helper()
	return must(kube.KubeconfigFile("olga", operators))(t)
}

// startDashboard runs the built plugin as a person does, until the end of the test.
func startDashboard(t *testing.T, kubeconfig string, more ...string) served {
	t.Helper()
	path := must(manager.BuildPlugin(t.Context()))(t)
	args := append([]string{"dashboard", "--kubeconfig=" + kubeconfig, "--drawbridge-namespace=" + inst.Namespace}, more...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	program := must(kube.StartProgram(ctx, cluster.ProgramOptions{}, path, args...))(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, line := range program.Lines() {
				t.Logf("dashboard: %s", line.Text)
			}
		}
	})
	waiting, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	line := must(program.WaitLine(waiting, "http://"))(t)
	return served{first: printedURL.FindString(line.Text), program: program}
}

// runDashboard runs the command in this process, by another clock, until the end of the
// test.
func runDashboard(t *testing.T, kubeconfig string, c clock.WithTicker, more ...string) served {
	t.Helper()
	lines := &output{found: make(chan string, 1)}
	o := cli.DefaultOptions()
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: lines, ErrOut: lines}
	o.Clock = c
	o.Size = func() (int, int, bool) { return 0, 0, false }
	command := plugin.NewCommand(o)
	command.SetArgs(append([]string{"dashboard", "--kubeconfig=" + kubeconfig, "--drawbridge-namespace=" + inst.Namespace}, more...))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, cli.ErrInterrupted) {
			t.Errorf("the dashboard: %v", err)
		}
	})
	waiting, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	select {
	case first := <-lines.found:
		return served{first: first}
	case err := <-ended:
		ended <- err // For the clean-up.
		t.Fatalf("the dashboard ended: %v\n%s", err, lines.text())
	case <-waiting.Done():
		t.Fatalf("the dashboard prints no address: %s", lines.text())
	}
	return served{}
}

// output of a command, in which an address is looked for.
type output struct {
	found chan string

	mu  sync.Mutex
	all strings.Builder
}

// Write keeps what is printed.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := printedURL.MatchString(o.all.String())
	o.all.Write(text)
	if found := printedURL.FindString(o.all.String()); found != "" && !before {
		o.found <- found
	}
	return len(text), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// wire is a TCP proxy before the API server, which can be cut.
type wire struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

// throughWire returns a wire to the API server, and a copy of the kubeconfig that goes
// through it.
func throughWire(t *testing.T, kubeconfig string) (*wire, string) {
	t.Helper()
	host := kube.Config().Host
	target := strings.TrimPrefix(host, "https://")
	var listen net.ListenConfig
	w := &wire{listener: must(listen.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t), target: target, open: map[net.Conn]bool{}}
	go w.serve()
	t.Cleanup(func() {
		w.setCut(true)
		_ = w.listener.Close() // Ends serve.
	})
	content := must(os.ReadFile(kubeconfig))(t)
	changed := strings.ReplaceAll(string(content), host, "https://"+w.listener.Addr().String())
	if changed == string(content) {
		t.Fatalf("the kubeconfig does not name %s", host)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return w, path
}

func (w *wire) serve() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return // Closed.
		}
		go w.carry(conn)
	}
}

// carry copies both directions of one connection until either end closes it.
func (w *wire) carry(conn net.Conn) {
	defer func() { _ = conn.Close() }() // It may be closed already.
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", w.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }() // As above.
	if !w.keep(conn, server) {
		return
	}
	go func() {
		_, _ = io.Copy(server, conn) // It breaks when either side does.
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
}

func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	for _, conn := range conns {
		w.open[conn] = true
	}
	return true
}

// setCut breaks all connections and refuses new ones, or no longer does.
func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for conn := range w.open {
			_ = conn.Close() // It is to break.
			delete(w.open, conn)
		}
	}
}
