package descheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// bench is the controller over a cache and an API server that may know more.
type bench struct {
	*Reconciler
	t      *testing.T
	server client.WithWatch
	clock  *testingclock.FakeClock
	queue  controllers.Queue
	calls  []string
}

// newBench has a cache and a server with the same objects.
func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{
		t: t, server: newServer(t, objects...), clock: testingclock.NewFakeClock(at(0)),
		queue: promptQueue{workqueue.NewTypedRateLimitingQueue(controllers.FastBackoff())},
	}
	t.Cleanup(b.queue.ShutDown)
	b.Reconciler = &Reconciler{
		Client: b.cache(objects...), Clock: b.clock, MarkInProgress: true, MarkEvictOnly: true,
		Resolver: builder.FromAnnotation{}, OnChange: func(func()) {}, Synced: func() bool { return true },
		APIReader: interceptor.NewClient(b.server, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				b.calls = append(b.calls, "get "+key.Name)
				return c.Get(ctx, key, obj, opts...)
			},
		}),
	}
	return b
}

// promptQueue makes nobody wait.
type promptQueue struct{ controllers.Queue }

func (q promptQueue) AddAfter(key reconcile.Request, _ time.Duration) { q.Add(key) }

func newServer(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	copies := make([]client.Object, 0, len(objects))
	for _, o := range objects {
		if c, ok := o.DeepCopyObject().(client.Object); ok {
			copies = append(copies, c)
		}
	}
	return fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(copies...).Build()
}

// cache is a client that reads these objects and writes to the server.
func (b *bench) cache(objects ...client.Object) client.Client {
	return interceptor.NewClient(newServer(b.t, objects...), interceptor.Funcs{
		Patch: func(ctx context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			b.calls = append(b.calls, "patch "+obj.GetName())
			err := b.server.Patch(ctx, obj, patch, opts...)
			if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
				// The API server answers a failed test of a patch with 422, the fake one
				// with an error of its own.
				return apierrors.NewGenericServerResponse(422, "", corev1.Resource("pods"), "", err.Error(), 0, false)
			}
			return err
		},
	})
}

func (b *bench) reconcile() (reconcile.Result, error) {
	b.t.Helper()
	return b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "web-1"}})
}

// annotations of the pod on the server.
func (b *bench) annotations() map[string]string {
	b.t.Helper()
	pod := &corev1.Pod{}
	if err := b.server.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-1"}, pod); err != nil {
		b.t.Fatal(err)
	}
	return pod.Annotations
}

// queued takes the names of the pods out of the queue.
func (b *bench) queued() []string {
	var names []string
	for b.queue.Len() > 0 {
		key, _ := b.queue.Get()
		b.queue.Done(key)
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return names
}

func newPod() *builder.PodWrapper { return builder.Pod("shop", "web-1").UID("uid-1") }

func newRequest() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("a.example.com").Interceptors("i.example.com")
}

func TestDeschedulerAnnotatesPods(t *testing.T) {
	t.Parallel()
	mine, theirs := map[string]string{evictionInProgress: ours}, map[string]string{evictionInProgress: "kubevirt"}
	cases := map[string]struct {
		cached, live *builder.PodWrapper // The same when live is nil.
		request      *builder.EvictionRequestWrapper
		change       func(*Reconciler)
		want         map[string]string
		calls        []string
	}{
		"a plain pod costs nothing": {cached: newPod()},
		"a pod whose eviction goes on": {
			cached: newPod(), request: newRequest(), want: mine, calls: []string{"patch web-1"},
		},
		"the mark goes with the cancellation": {
			cached: newPod().Annotation(evictionInProgress, ours), request: newRequest().Canceled(v1alpha1.ReasonNoRequesters, at(0)),
			calls: []string{"patch web-1"},
		},
		"what a manager left behind that was killed": {
			cached: newPod().Annotation(evictionInProgress, ours), calls: []string{"patch web-1"},
		},
		"somebody else's mark stays": {cached: newPod().Annotation(evictionInProgress, "kubevirt"), want: theirs},
		"somebody else marked it meanwhile": {
			cached: newPod(), live: newPod().Annotation(evictionInProgress, "kubevirt"), request: newRequest(),
			want: theirs, calls: []string{"patch web-1", "get web-1"},
		},
		"somebody else took our mark over meanwhile": {
			cached: newPod().Annotation(evictionInProgress, ours), live: newPod().Annotation(evictionInProgress, "kubevirt"),
			want: theirs, calls: []string{"patch web-1", "get web-1"},
		},
		"other annotations came meanwhile": {
			cached: newPod(), live: newPod().Annotation("a", "b"), request: newRequest(),
			want: map[string]string{"a": "b", evictionInProgress: ours}, calls: []string{"patch web-1", "get web-1", "patch web-1"},
		},
		"a pod whose platform marks it by itself": {
			cached: newPod().Label("kubevirt.io", "virt-launcher"), request: newRequest(), change: leaveLaunchers,
		},
		"one that an earlier version has marked": {
			cached: newPod().Label("kubevirt.io", "virt-launcher").Annotation(evictionInProgress, ours), request: newRequest(), change: leaveLaunchers,
			calls: []string{"patch web-1"},
		},
		"another pod of the platform": {
			cached: newPod().Label("kubevirt.io", "hotplug-disk"), request: newRequest(), change: leaveLaunchers,
			want: map[string]string{evictionInProgress: ours}, calls: []string{"patch web-1"},
		},
		"another pod of that name came meanwhile": {
			cached: newPod(), live: newPod().UID("uid-2"), request: newRequest(), calls: []string{"patch web-1", "get web-1"},
		},
		"an intercepted pod": {
			cached: newPod().Interceptors("i.example.com"),
			want:   map[string]string{requestEvictOnly: ours, v1alpha1.InterceptorsAnnotation: "i.example.com"}, calls: []string{"patch web-1"},
		},
		"an intercepted pod, which is left to its template": {
			cached: newPod().Interceptors("i.example.com"), change: func(d *Reconciler) { d.MarkEvictOnly, d.Resolver, d.Synced = false, nil, nil },
			want: map[string]string{v1alpha1.InterceptorsAnnotation: "i.example.com"},
		},
		"evictions of a DaemonSet's pods are never held up": {
			cached: newPod().Interceptors("i.example.com").DaemonSet("agent"),
			want:   map[string]string{v1alpha1.InterceptorsAnnotation: "i.example.com"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cached := []client.Object{tc.cached.Obj()}
			if tc.request != nil {
				cached = append(cached, tc.request.Obj())
			}
			b := newBench(t, cached...)
			if tc.live != nil {
				b.server = newServer(t, tc.live.Obj())
				b.APIReader = interceptor.NewClient(b.server, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						b.calls = append(b.calls, "get "+key.Name)
						return c.Get(ctx, key, obj, opts...)
					},
				})
			}
			if tc.change != nil {
				tc.change(b.Reconciler)
			}
			if result, err := b.reconcile(); err != nil || result != (reconcile.Result{}) {
				t.Fatalf("want no error and nothing to come back for, got %v and %v", err, result)
			}
			if diff := cmp.Diff(tc.want, b.annotations()); diff != "" && len(tc.want)+len(b.annotations()) > 0 {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.calls, b.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// KubeVirt takes the mark of a machine without its own mark away as often as we set it.
// What somebody has taken away is not set again as long as the eviction runs.
func TestDeschedulerDoesNotFight(t *testing.T) {
	t.Parallel()
	b := newBench(t, newPod().Obj(), newRequest().Obj())
	for range 5 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		pod := newPod().Obj()
		if err := b.server.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		delete(pod.Annotations, evictionInProgress)
		if err := b.server.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"patch web-1"}, b.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestDeschedulerWaitsForTheRegistrations(t *testing.T) {
	t.Parallel()
	b := newBench(t, newPod().Annotation(requestEvictOnly, ours).Obj())
	b.Synced = func() bool { return false }
	result, err := b.reconcile()
	if err != nil || result.RequeueAfter != pause || len(b.calls) > 0 {
		t.Errorf("it comes back in %s with error %v after %v, want %s, none and no call", result.RequeueAfter, err, b.calls, pause)
	}
}

func TestDeschedulerEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t, newRequest().Obj())
	events := b.pods().Handler()
	for _, pod := range []*builder.PodWrapper{
		newPod(), // Its eviction runs.
		builder.Pod("shop", "web-2").UID("uid-2").Annotation(evictionInProgress, ours), // Left behind.
		builder.Pod("shop", "web-3").UID("uid-3").Interceptors("i.example.com"),
		builder.Pod("shop", "web-4").UID("uid-4"),
		builder.Pod("shop", "web-5").UID("uid-5").Annotation(evictionInProgress, "kubevirt"),
	} {
		events.Create(t.Context(), event.CreateEvent{Object: pod.Obj()}, b.queue)
		events.Update(t.Context(), event.UpdateEvent{ObjectOld: pod.Obj(), ObjectNew: pod.Obj()}, b.queue)
	}
	// What was done already is not done again.
	events.Update(t.Context(), event.UpdateEvent{
		ObjectOld: builder.Pod("shop", "web-6").UID("uid-6").Annotation(evictionInProgress, ours).Obj(),
		ObjectNew: builder.Pod("shop", "web-6").UID("uid-6").Obj(),
	}, b.queue)
	if diff := cmp.Diff([]string{"web-1", "web-2", "web-3"}, b.queued()); diff != "" {
		t.Errorf("pods to look at (-want +got):\n%s", diff)
	}
	if len(b.calls) > 0 {
		t.Errorf("events cost the calls %v, want none", b.calls)
	}
}

// leaveLaunchers is how the chart's preset for KubeVirt sets the descheduler's hints up.
func leaveLaunchers(d *Reconciler) {
	d.Except = labels.SelectorFromSet(labels.Set{"kubevirt.io": "virt-launcher"})
}

// changing is a resolver whose answer changes.
type changing struct {
	mu    sync.Mutex
	names []string
}

func (c *changing) Resolve(*corev1.Pod) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names, nil
}

func TestDeschedulerLooksAgainWhenRegistrationsChange(t *testing.T) {
	t.Parallel()
	b := newBench(t, newPod().Obj(), builder.Pod("shop", "web-2").UID("uid-2").Annotation(requestEvictOnly, "theirs").Obj())
	resolver := &changing{}
	b.Resolver = resolver
	var notify func()
	b.OnChange = func(f func()) { notify = f }
	if err := b.changes(b.Client).Start(t.Context(), b.queue); err != nil {
		t.Fatal(err)
	}
	pass := func() { // One pass of the rescan, from the change to the queue.
		t.Helper()
		waiting.Eventually(t, "somebody to look again", func(context.Context) error {
			if !b.clock.HasWaiters() {
				return errors.New("nobody waits for it")
			}
			return nil
		})
		b.clock.Step(controllers.RescanDelay)
	}
	pass() // What there is at the start needs nothing.
	resolver.mu.Lock()
	resolver.names = []string{"i.example.com"}
	resolver.mu.Unlock()
	notify()
	notify()
	pass()
	key, _ := b.queue.Get()
	if key.Name != "web-1" || b.queue.Len() != 0 {
		t.Errorf("the first of %d pods to look at is %s, want only web-1", b.queue.Len()+1, key.Name)
	}
}

var stepTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a time of the tests, in seconds after their start.
func at(seconds int) time.Time { return stepTime.Add(time.Duration(seconds) * time.Second) }

func TestSetupNamesWhatIsMissing(t *testing.T) {
	err := (&Reconciler{}).SetupWithManager(nil)
	if err == nil {
		t.Fatal("got no error")
	}
	want := "controller descheduler-hints: " + strings.Join([]string{"APIReader is not set", "Client is not set", "Clock is not set", "OnChange is not set", "Resolver is not set", "Synced is not set"}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
