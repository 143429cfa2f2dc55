package app

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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

const (
	// fieldOwner owns what the plugin applies.
	fieldOwner = "kubectl-drawbridge"
	// callTimeout bounds every call but watches, if --request-timeout does not.
	callTimeout = 30 * time.Second
)

// scheme has the kinds that the plugin reads and writes.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// connection is the way to the cluster.
type connection struct {
	client.Client
	// config is for those who need a client of their own.
	config *rest.Config
	// namespace is the one of --namespace or of the context.
	namespace string
	// warnings of the API server.
	warnings *warnings
	// server tells the server's time.
	server *serverClock
}

// connect makes the connection that the flags ask for. It calls nobody.
func (o *Options) connect() (*connection, error) {
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
		config.Timeout = callTimeout
	}
	c := &connection{config: config, namespace: namespace, warnings: &warnings{}, server: &serverClock{local: o.Clock}}
	config.WarningHandler = c.warnings
	config.Wrap(c.server.wrap)
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return c, nil
}

// whoAmI is the user name under which the API server sees us.
func (c *connection) whoAmI(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("learn your user name: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// warnings keeps what the API server warns of.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _ string, text string) {
	const miscellaneous = 299 // The only code that means a warning of the API server.
	if code != miscellaneous || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.said, text) {
		w.said = append(w.said, text)
	}
}

// take returns what has been said since the last time.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// tell prints what has been said.
func (o *Options) tell(w *warnings) {
	for _, text := range w.take() {
		fmt.Fprintln(o.ErrOut, "Warning:", text)
	}
}

// serverClock learns from the answers how far the server's clock is from ours: a
// time that is written must be near the server's.
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

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
