package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/internal/health"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// Most of what a manager does is to get events of pods that it has nothing to do with. This is
// what the transform and all handlers do about one; decoding and client-go's queues are not in it.
func TestAnEventOfAPodThatNobodyFollowsAllocatesLittle(t *testing.T) {
	pods, transform := handlersOfPods(t)
	if diff := cmp.Diff(14, pods.handlers); diff != "" {
		t.Errorf("handlers of pods, each of which gets every event (-want +got):\n%s", diff)
	}
	kept := func(pod *corev1.Pod) any {
		small, err := transform(pod)
		if err != nil {
			t.Fatal(err)
		}
		return small
	}
	pod := func(version string) *builder.PodWrapper {
		return builder.Pod("shop", "web-7c6f6d9b5d-x2x4z").UID("5d1c0a1b-6a9d-2e6f-43b5-b0f8e1d9a7c2").ResourceVersion(version).
			Label("app", "web").OwnedBy("ReplicaSet", "web-7c6f6d9b5d").Node("n1").Ready()
	}
	sent, leaving := pod("8").Obj(), pod("9").Deleting(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)).Obj()
	before, after, last := kept(pod("7").Obj()), kept(sent), kept(leaving)
	cases := map[string]struct {
		event func()
		most  allocation.Cost
	}{
		"a change": {func() { pods.Update(packed.Of(before), packed.Of(kept(sent))) }, allocation.Cost{Allocs: 19, Bytes: 4800}},
		"made, then leaving and gone": {func() {
			pods.Add(packed.Of(kept(sent)))
			pods.Update(packed.Of(after), packed.Of(kept(leaving)))
			pods.Delete(packed.Of(last))
		}, allocation.Cost{Allocs: 92, Bytes: 17_200}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { allocation.AtMost(t, tc.most, tc.event) })
	}
}

// handlersOfPods starts the parts that the chart runs and returns an informer with all their
// handlers of pods, and the transform of pods. There are no objects, and the API server serves
// nothing.
func handlersOfPods(t *testing.T) (*informer, toolscache.TransformFunc) {
	t.Helper()
	working := 0
	var mu sync.Mutex
	o := DefaultOptions()
	o.Namespace, o.HealthAddr, o.MetricsAddr, o.Registerer = "drawbridge-system", "", "", prometheus.NewRegistry()
	o.Logger = funcr.NewJSON(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, `"Starting workers"`) {
			working++
		}
	}, funcr.Options{})
	calls := metrics.NewWebhookServer(o.Registerer)
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil } //nolint:nilnil // Nobody calls.
	apiServer := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(apiServer.Close)
	empty := &emptyCache{informers: map[string]*informer{}}
	inner, err := ctrl.NewManager(&rest.Config{Host: apiServer.URL}, manager.Options{
		Scheme: newScheme(), Logger: o.Logger, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		WebhookServer: newWebhookServer(o, calls, &health.Shutdown{}, serveWith(certificate)),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return testrestmapper.TestOnlyStaticRESTMapper(newScheme()), nil
		},
		NewCache:  func(*rest.Config, cache.Options) (cache.Cache, error) { return empty, nil },
		NewClient: func(*rest.Config, client.Options) (client.Client, error) { return emptyClient{cache: empty}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	mgr := &parts{Manager: inner}
	known := discovered{
		self: "system:serviceaccount:drawbridge-system:drawbridge", synced: func() bool { return true },
		token: func(string, string) error { return nil }, calls: calls, certificate: certificate,
		writes: refused.NewTracker(o.Clock, metrics.NewRefused(o.Registerer), o.Logger),
	}
	if err := setup(t.Context(), mgr, o, known); err != nil {
		t.Fatal(err)
	}
	if err := setupSurge(t.Context(), mgr, o, known.writes); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(logr.NewContext(context.Background(), o.Logger))
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	started := []manager.Runnable{mgr.native}
	for _, part := range mgr.controllers {
		started = append(started, part)
	}
	for _, part := range started {
		running.Go(func() {
			if err := part.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Eventually(t, "all controllers to work", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if working < len(mgr.controllers) || !mgr.native.Known() {
			return fmt.Errorf("%d of %d work, the native API is known: %t", working, len(mgr.controllers), mgr.native.Known())
		}
		return nil
	})
	for kind, of := range cacheOptions(o).ByObject {
		if _, ok := kind.(*corev1.Pod); ok {
			return empty.of(kind), of.Transform
		}
	}
	t.Fatal("the cache has no options for pods")
	return nil, nil
}

// parts is a manager that keeps the controllers it gets, and runs nothing.
type parts struct {
	manager.Manager

	controllers []controller.Controller
	// native looks whether the API server serves lifecycle.k8s.io, which handlers want to know.
	native *charge.Charge
}

func (p *parts) Add(part manager.Runnable) error {
	switch part := part.(type) {
	case controller.Controller:
		p.controllers = append(p.controllers, part)
	case *charge.Charge:
		p.native = part
	}
	return nil
}

// emptyClient reads from a cache without objects. Nothing may be written.
type emptyClient struct {
	client.Client

	cache *emptyCache
}

func (c emptyClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	return c.cache.Get(ctx, key, obj, options...)
}

func (c emptyClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.cache.List(ctx, list, options...)
}

// emptyCache has informers that know what they are told, and no objects.
type emptyCache struct {
	informertest.FakeInformers

	mu        sync.Mutex
	informers map[string]*informer
}

func (c *emptyCache) of(obj client.Object) *informer {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := reflect.TypeOf(obj).String()
	if c.informers[kind] == nil {
		c.informers[kind] = &informer{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced)}
	}
	return c.informers[kind]
}

func (c *emptyCache) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return c.of(obj), nil
}

// Get costs nothing, as that of the manager for requests.
func (c *emptyCache) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errNothing
}

var errNothing = apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "any")

// informer is one to whose handlers several may add at a time.
type informer struct {
	*controllertest.FakeInformer

	mu       sync.Mutex
	handlers int
}

func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers++
	return i.FakeInformer.AddEventHandlerWithOptions(handler, options)
}
