package state

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// kind is one watched kind. Each is watched by itself, so that one that cannot be read does
// not keep the others from being shown.
type kind struct {
	resource string
	object   client.Object
	list     func() client.ObjectList
	informer toolscache.SharedIndexInformer

	// broken is why the last call failed, and since when; nil while all is well.
	broken error
	since  time.Time
}

// emptyWatch is what client-go returns instead of an error when a connection was closed before
// an answer came, as that of a proxy without its server is.
var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

var errClosed = errors.New("the connection was closed without an answer")

// start begins to watch; it ends with the context. The reflector below tries again after a
// failure, with a pause that grows to half a minute.
func (s *Store) start(ctx context.Context, k *kind) error {
	k.informer = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := k.list()
			err := s.client.List(ctx, list, &client.ListOptions{Raw: &options})
			s.heard(ctx, k, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := s.client.Watch(ctx, k.list(), &client.ListOptions{Raw: &options})
			if err == nil && reflect.TypeOf(w) == emptyWatch {
				w, err = nil, errClosed
			}
			s.heard(ctx, k, err)
			return w, err
		},
	}, k.object, 0, toolscache.Indexers{})
	if err := k.informer.SetTransform(slim); err != nil {
		return fmt.Errorf("watch %s: %w", k.resource, err)
	}
	// The errors are kept by heard; printed, they would break what the terminal shows.
	if err := k.informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}); err != nil {
		return fmt.Errorf("watch %s: %w", k.resource, err)
	}
	if _, err := k.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.saw,
		UpdateFunc: func(_, now any) { s.saw(now) },
		DeleteFunc: s.lost,
	}); err != nil {
		return fmt.Errorf("watch %s: %w", k.resource, err)
	}
	go k.informer.RunWithContext(ctx)
	return nil
}

// heard notes whether a call has succeeded.
func (s *Store) heard(ctx context.Context, k *kind, err error) {
	// Old versions are part of life: the list that follows tells how things are.
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && k.broken == nil:
		return
	case err == nil:
		k.broken = nil
	case k.broken == nil:
		k.broken, k.since = err, s.clock.Now()
	case k.broken.Error() == err.Error():
		return
	default:
		k.broken = err
	}
	s.change()
}

// gap says what is not known of a kind; ok if there is such a thing.
func (k *kind) gap() (g Gap, ok bool) {
	synced := k.informer != nil && k.informer.HasSynced()
	switch {
	case k.broken == nil && synced:
		return Gap{}, false
	case k.broken == nil:
		return Gap{Resource: k.resource, Why: "still being read."}, true
	}
	g = Gap{Resource: k.resource, Why: why(k.broken)}
	if k.resource == nativeEvictions && (meta.IsNoMatchError(k.broken) || apierrors.IsNotFound(k.broken)) {
		g.Why = "the API server does not serve them any more."
	}
	if synced {
		g.Since = k.since
	}
	return g, true
}

// why says in a sentence why a kind cannot be watched.
func why(err error) string {
	switch said := text.Clean(strings.TrimSuffix(err.Error(), ".")); {
	case apierrors.IsForbidden(err):
		return "you may not list and watch them: " + said + "."
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return "this cluster does not know them: Drawbridge is not installed, or is older than this plugin."
	case apierrors.IsUnauthorized(err):
		return "your credentials are not accepted any more: sign in, and start the dashboard again."
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err):
		return "the API server does not respond in time; retrying."
	default:
		return "the API server cannot be reached; retrying: " + said + "."
	}
}
