package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoapply "k8s.io/client-go/applyconfigurations"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration"
	applyv1alpha1 "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const ownNamespace = "drawbridge-system"

// world is a handler with an API server that counts, and a cache that shows what
// the API server had when it was last synced. The fake API server stands in for
// create, join and delete only; nothing is proved about evictions or budgets here.
type world struct {
	t        testing.TB
	scheme   *runtime.Scheme
	api      client.WithWatch
	cache    *switchable
	leases   *LeaseIndex
	handler  *EvictionHandler
	renewer  *Renewer
	clock    *testingclock.FakeClock
	registry *prometheus.Registry
	recorder *recorder

	mu   sync.Mutex
	made []string
	born int
	// fail, if set, is asked before each API call; its error is the answer.
	fail func(call string) error
}

func newWorld(tb testing.TB, objects ...client.Object) *world {
	tb.Helper()
	w := &world{t: tb, scheme: builder.Scheme(tb), clock: testingclock.NewFakeClock(t0), registry: prometheus.NewRegistry(), recorder: &recorder{}}
	w.api = w.build(objects...)
	w.cache, w.leases = &switchable{}, &LeaseIndex{}
	w.sync()
	counted := interceptor.NewClient(w.api, w.counting())
	config := Config{
		Cached: w.cache, Leases: w.leases, Live: counted, Writer: counted, Synced: func() bool { return true },
		Resolver: annotation{}, Registrations: registered{}, Preflights: asks(nil), Stalled: nobodyStalls, Gate: noGuards{}, Recorder: w.recorder,
		Metrics: metrics.NewWebhook(w.registry), Clock: w.clock, Log: logr.Discard(), Namespace: ownNamespace, OwnUsername: ownAdmin,
	}
	var err error
	if w.handler, w.renewer, err = NewEvictionHandler(config); err != nil {
		tb.Fatal(err)
	}
	return w
}

// nobodyStalls knows of no interceptor that cannot go on.
func nobodyStalls(context.Context, *corev1.Pod, *v1alpha1.EvictionRequest) string { return "" }

// noGuards is the gate of an installation without guards.
type noGuards struct{}

func (noGuards) Labels() bool { return false }

func (noGuards) Closed(*corev1.Pod) bool { return false }

func (noGuards) Held(*corev1.Pod) bool { return false }

func (w *world) build(objects ...client.Object) client.WithWatch {
	with := fake.NewClientBuilder().WithScheme(w.scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.EvictionRequest{}).
		WithTypeConverters(applyconfiguration.NewTypeConverter(w.scheme), clientgoapply.NewTypeConverter(w.scheme))
	index.All(func(object client.Object, name string, extract client.IndexerFunc) {
		with.WithIndex(object, name, extract)
	})
	return with.Build()
}

// sync makes the cache show what the API server has.
func (w *world) sync() {
	w.t.Helper()
	var objects []client.Object
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}, &v1alpha1.EvictionRequestList{}, &coordinationv1.LeaseList{}} {
		if err := w.api.List(context.Background(), list); err != nil {
			w.t.Fatal(err)
		}
		switch list := list.(type) {
		case *corev1.PodList:
			objects = appendAll(objects, list.Items)
		case *corev1.NodeList:
			objects = appendAll(objects, list.Items)
		case *v1alpha1.EvictionRequestList:
			objects = appendAll(objects, list.Items)
		case *coordinationv1.LeaseList:
			w.leases.byName.Clear()
			for i := range list.Items {
				w.leases.put(&list.Items[i])
			}
		}
	}
	w.cache.set(w.build(objects...))
}

func appendAll[T any, P interface {
	*T
	client.Object
}](objects []client.Object, items []T) []client.Object {
	for i := range items {
		objects = append(objects, P(&items[i]))
	}
	return objects
}

// counting notes each API call as "verb Kind name".
func (w *world) counting() interceptor.Funcs {
	note := func(verb string, obj any, name string) error {
		kind := strings.TrimSuffix(lastPart(fmt.Sprintf("%T", obj)), "ApplyConfiguration")
		call := verb + " " + kind + " " + name
		w.mu.Lock()
		defer w.mu.Unlock()
		w.made = append(w.made, call)
		if w.fail != nil {
			return w.fail(call)
		}
		return nil
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := note("get", obj, key.Name); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := note("list", list, ""); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := note("create", obj, obj.GetName()); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if err := note("update", obj, obj.GetName()); err != nil {
				return err
			}
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := note("delete", obj, obj.GetName()); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := note("patch", obj, obj.GetName()); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := note("apply", obj, ""); err != nil {
				return err
			}
			if err := c.Apply(ctx, obj, opts...); err != nil {
				return err
			}
			return w.giveUID(ctx, c, obj)
		},
	}
}

// giveUID does what the fake API server does not: every new object gets a UID.
func (w *world) giveUID(ctx context.Context, c client.Client, applied runtime.ApplyConfiguration) error {
	config, ok := applied.(*applyv1alpha1.EvictionRequestApplyConfiguration)
	if !ok || config.UID != nil {
		return nil
	}
	var request v1alpha1.EvictionRequest
	if err := c.Get(ctx, client.ObjectKey{Namespace: *config.Namespace, Name: *config.Name}, &request); err != nil {
		return err
	}
	w.mu.Lock()
	w.born++
	request.UID = types.UID(fmt.Sprintf("born-%d", w.born))
	w.mu.Unlock()
	config.WithUID(request.UID)
	return c.Update(ctx, &request)
}

// calls returns the API calls since the last time, and forgets them.
func (w *world) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.made
	w.made = nil
	return calls
}

func (w *world) failing(f func(call string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = f
}

// request is db0's request on the API server; nil if there is none.
func (w *world) request() *v1alpha1.EvictionRequest {
	w.t.Helper()
	var request v1alpha1.EvictionRequest
	err := w.api.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "uid-1"}, &request)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &request
}

// lease is alice's lease for n1 on the API server; nil if there is none.
func (w *world) lease() *coordinationv1.Lease {
	w.t.Helper()
	var lease coordinationv1.Lease
	err := w.api.Get(context.Background(), client.ObjectKey{Namespace: ownNamespace, Name: leaseN1}, &lease)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &lease
}

// leaseOfN1 is alice's lease for n1, renewed at t0.
func leaseOfN1() *coordinationv1.Lease {
	return translate.EncodeLease(translate.LeaseRecord{
		Requester: alice, Node: "n1", Class: translate.ClassKubectl, TTL: 2 * time.Minute, RenewedAt: t0,
	}, ownNamespace)
}

// replica is another handler on the same API server, with the same cache.
func (w *world) replica() *EvictionHandler {
	c := w.handler.Config
	handler, _, err := NewEvictionHandler(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return handler
}

// switchable is a reader that can be replaced as a whole.
type switchable struct {
	mu sync.RWMutex
	client.Reader
}

func (s *switchable) set(r client.Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Reader = r
}

func (s *switchable) now() client.Reader {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.Reader
}

func (s *switchable) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return s.now().Get(ctx, key, obj, opts...)
}

func (s *switchable) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return s.now().List(ctx, list, opts...)
}

// annotation resolves like the product does.
type annotation struct{}

func (a annotation) Resolve(pod *corev1.Pod) ([]string, error) { return a.names(pod), nil }

func (annotation) names(pod *corev1.Pod) []string {
	names, _ := translate.ParseInterceptors(pod.Annotations[v1alpha1.InterceptorsAnnotation])
	return names
}

// recorder keeps events as "kind/name reason".
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := regarding.GetObjectKind().GroupVersionKind().Kind
	r.events = append(r.events, kind+" "+reason)
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	slices.Sort(events)
	return events
}

func lastPart(name string) string { return name[strings.LastIndex(name, ".")+1:] }

// counter returns the series of a counter by their label values.
func (w *world) counter(name string) map[string]float64 {
	w.t.Helper()
	return builder.Series(w.t, w.registry, name)
}
