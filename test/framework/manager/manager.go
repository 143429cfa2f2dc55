//go:build unix

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// Options of a manager in this process. The zero value is fine.
type Options struct {
	// Clock is the manager's clock; a new one if nil. Hand the clock of one manager to
	// the next, so that time does not jump back between them.
	Clock *clock.Clock
	// Change alters the options, which are the flags' defaults with no leader
	// election, no delay at the shutdown and debug logs.
	Change func(*app.Options)
	// Wrap gets between the manager and the API server, for example to hold up what
	// it watches. May be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Manager runs in this process.
type Manager struct {
	// Clock is its clock.
	Clock *clock.Clock
	// Metrics are its own ones. Those of controller-runtime, such as workqueue_*,
	// are in controller-runtime's registry.
	Metrics *prometheus.Registry
	// Options it was started with.
	Options app.Options

	cancel context.CancelFunc
	cut    *cut
	done   chan struct{}
	err    error
}

// setLogger silences controller-runtime's global logger, which has no manager.
var setLogger = sync.OnceFunc(func() { ctrl.SetLogger(logr.Discard()) })

// clocks are those of all managers of this process.
var clocks clockSet

type clockSet struct {
	mu  sync.Mutex
	all []*clock.Clock
}

func (s *clockSet) add(c *clock.Clock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.all, c) {
		s.all = append(s.all, c)
	}
}

// Advances returns how the clocks of the managers of this process were moved so far.
func Advances() []clock.Advance {
	clocks.mu.Lock()
	defer clocks.mu.Unlock()
	var all []clock.Advance
	for _, c := range clocks.all {
		all = append(all, c.Advances()...)
	}
	return all
}

// Start runs a manager in this process and returns when it is ready and the API
// server can call its webhook. It goes on when ctx ends: use Stop or Kill.
func (i *Installation) Start(ctx context.Context, o Options) (*Manager, error) {
	setLogger()
	conf, err := i.config(ctx)
	if err != nil {
		return nil, err
	}
	options, err := i.appOptions(ctx, o)
	if err != nil {
		return nil, err
	}
	log, err := i.logFile()
	if err != nil {
		return nil, err
	}
	sink := &logSink{file: log}
	options.Logger = fileLogger(sink)

	m := &Manager{Clock: o.Clock, Metrics: prometheus.NewRegistry(), cut: &cut{}, done: make(chan struct{})}
	if m.Clock == nil {
		m.Clock = clock.New()
	}
	clocks.add(m.Clock)
	options.Clock, options.Registerer = m.Clock, m.Metrics
	m.Options = options
	if o.Wrap != nil {
		conf.Wrap(o.Wrap)
	}
	conf.Wrap(m.cut.wrap)

	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = errors.Join(app.Run(running, conf, options), sink.Close())
	}()
	if err := i.waitReady(ctx, options.HealthAddr, readyTimeout, m.done, func() error { return m.err }); err != nil {
		m.Kill()
		return nil, fmt.Errorf("%w (its log: %s)", err, log.Name())
	}
	return m, nil
}

// appOptions are the options of a manager of this installation.
func (i *Installation) appOptions(ctx context.Context, o Options) (app.Options, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return app.Options{}, err
	}
	options := app.DefaultOptions()
	options.Namespace = i.Namespace
	options.WebhookPort = i.WebhookPort
	options.WebhookCertSecret = i.Release + "-webhook-cert"
	options.WebhookConfiguration = ""
	if i.webhook {
		options.WebhookConfiguration = i.Release
	}
	options.HealthAddr = loopback(ports[0])
	options.MetricsAddr = "0"
	options.LeaderElect = false
	options.ShutdownDelay = 0
	options.Operations.MetricsProtected = false
	options.LogLevel = "debug"
	options.ShortHeartbeatDeadline = true // Tests may not have minutes.
	if o.Change != nil {
		o.Change(&options)
	}
	return options, nil
}

// waitReady waits for the readiness probe, for the failure policy, and then for the
// API server to trust the webhook. It gives up when the manager ends.
func (i *Installation) waitReady(ctx context.Context, healthAddr string, patience time.Duration, done <-chan struct{}, failure func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := waiting.For(ctx, "the manager", func(ctx context.Context) error {
		select {
		case <-done:
			return waiting.InVain(fmt.Errorf("the manager ended: %w", failure()))
		default:
			return get(ctx, "http://"+healthAddr+"/readyz")
		}
	})
	if err != nil {
		return err
	}
	if !i.webhook {
		return nil
	}
	if err := i.waitPolicy(ctx); err != nil {
		return err
	}
	return i.waitProbe(ctx, "the API server to trust the webhook", apierrors.IsNotFound)
}

func get(ctx context.Context, url string) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// Stop shuts the manager down as SIGTERM does and returns its error.
func (m *Manager) Stop(ctx context.Context) error {
	m.cancel()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return fmt.Errorf("stop manager: %w", ctx.Err())
	}
}

// Kill ends the manager as if its process died, as far as that can be done inside
// one: from this instant on none of its calls reaches the API server any more, so
// nothing it had begun is finished and no lease is released. Then it waits for the
// rest to end. StartProcess has the real thing.
func (m *Manager) Kill() {
	m.cut.off.Store(true)
	m.cancel()
	<-m.done
}

// Done is closed when the manager has ended.
func (m *Manager) Done() <-chan struct{} { return m.done }

// cut is a transport that can be cut off for good.
type cut struct{ off atomic.Bool }

var errCut = errors.New("this manager was killed")

func (c *cut) wrap(next http.RoundTripper) http.RoundTripper { return cutTransport{c, next} }

type cutTransport struct {
	*cut
	next http.RoundTripper
}

func (t cutTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.off.Load() {
		return nil, errCut
	}
	return t.next.RoundTrip(req)
}

// fileLogger writes what the manager logs, V(1) included.
func fileLogger(sink *logSink) logr.Logger {
	encoder := zap.NewDevelopmentEncoderConfig()
	encoder.EncodeTime = zapcore.TimeEncoderOfLayout(time.StampMilli)
	return zapr.NewLogger(zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoder), zapcore.AddSync(sink), zapcore.Level(-1))))
}

// logSink is a log file that forgets what comes after its end: client-go's event
// broadcaster ends some time after the manager.
type logSink struct {
	mu     sync.Mutex
	file   *os.File
	closed bool
}

func (s *logSink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(line), nil
	}
	return s.file.Write(line)
}

func (s *logSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.file.Close()
}
