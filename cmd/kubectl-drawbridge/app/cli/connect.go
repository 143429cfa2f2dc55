package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

const (
	// FieldOwner owns what the plugin applies.
	FieldOwner = "kubectl-drawbridge"
	// CallTimeout bounds every call but watches, if --request-timeout does not, and those of
	// completions, which have less.
	CallTimeout = 30 * time.Second
)

// Scheme has the kinds that the plugin reads and writes.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// Connection is a connection to the cluster.
type Connection struct {
	client.Client
	// REST is the configuration, for clients of another kind.
	REST *rest.Config
	// Namespace is the one of --namespace or of the context.
	Namespace string
	// warnings of the API server.
	warnings *warnings
	// server tells the server's time.
	server *serverClock
}

// Connect returns the connection that the flags select. It makes no calls.
func (o *Options) Connect() (*Connection, error) { return o.connect(CallTimeout) }

// connect is Connect with another time for every call.
func (o *Options) connect(timeout time.Duration) (*Connection, error) {
	config, err := o.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of the cluster: %w", err)
	}
	namespace, _, err := o.Config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of the cluster: %w", err)
	}
	config = rest.CopyConfig(config)
	if config.Timeout == 0 {
		config.Timeout = timeout
	}
	c := &Connection{REST: config, Namespace: namespace, warnings: &warnings{}, server: &serverClock{local: o.Clock}}
	config.WarningHandler = c.warnings
	config.Wrap(c.server.wrap)
	if c.Client, err = client.New(config, client.Options{Scheme: Scheme}); err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return c, nil
}

// WhoAmI returns our user as the API server sees it.
func (c *Connection) WhoAmI(ctx context.Context) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("learn your user name: %w", err)
	}
	return review.Status.UserInfo, nil
}

// ServerTime is the time by the server's clock, in whole seconds.
func (c *Connection) ServerTime() time.Time { return c.server.now() }

// TakeWarnings returns the API server's warnings since the last call.
func (c *Connection) TakeWarnings() []string { return c.warnings.take() }

// PrintWarnings prints the API server's warnings since the last call.
func (o *Options) PrintWarnings(c *Connection) {
	for _, text := range c.TakeWarnings() {
		fmt.Fprintln(o.ErrOut, "Warning:", text)
	}
}

var _ rest.WarningHandler = &warnings{}

// warnings collects the API server's warnings.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _ string, text string) {
	const miscellaneous = 299 // The only code of the API server's warnings.
	if code != miscellaneous || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.said, text) {
		w.said = append(w.said, text)
	}
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// serverClock measures, from answers, the offset of the server's clock: times that we
// write must be near the server's.
type serverClock struct {
	local clock.PassiveClock

	mu    sync.Mutex
	ahead time.Duration
}

// now is the server's time, in whole seconds.
func (s *serverClock) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local.Now().Add(s.ahead).Truncate(time.Second)
}

func (s *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return response, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			s.mu.Lock()
			s.ahead = date.Sub(s.local.Now().Truncate(time.Second))
			s.mu.Unlock()
		}
		return response, nil
	})
}

var _ http.RoundTripper = roundTripper(nil)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// OnLatest retries do when its object has changed since it was read: the manager writes
// to maintenances and requests all the time. do must be idempotent.
func OnLatest(do func() error) error { return retry.RetryOnConflict(retry.DefaultBackoff, do) }
