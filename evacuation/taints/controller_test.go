package taints

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// world is the controller over an API server whose calls are kept. Its cache has the same
// objects, or what cached makes of them.
type world struct {
	*Controller
	calls []string
	notes builder.NoteLog
}

func newWorld(t *testing.T, cached func(client.Object) client.Object, objects ...client.Object) *world {
	t.Helper()
	w := &world{}
	call := func(verb string, obj any) {
		kind := "request"
		if _, ok := obj.(*corev1.Pod); ok {
			kind = "pod"
		}
		w.calls = append(w.calls, verb+" "+kind)
	}
	server := builderOf(t, objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			call("get", obj)
			return c.Get(ctx, key, obj, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			call("apply", obj)
			return c.Apply(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			call("patch", obj)
			return c.Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	var seen []client.Object
	for _, object := range objects {
		if copied, ok := object.DeepCopyObject().(client.Object); ok {
			if cached != nil {
				copied = cached(copied)
			}
			if copied != nil {
				seen = append(seen, copied)
			}
		}
	}
	w.Controller = &Controller{
		Client: builderOf(t, seen...).Build(), APIReader: server, Requests: server, Clock: testingclock.NewFakeClock(noon),
		Resolver: builder.FromAnnotation{}, OnChange: func(func()) {}, Synced: func() bool { return true }, Recorder: &w.notes,
	}
	return w
}

func builderOf(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, index.PodsByNode, func(o client.Object) []string {
			pod, ok := o.(*corev1.Pod)
			if !ok {
				return nil
			}
			return []string{pod.Spec.NodeName}
		})
}

// request is that of the pod on the server, without counting the call.
func (w *world) until(t *testing.T) string {
	t.Helper()
	calls := w.calls
	defer func() { w.calls = calls }()
	er := &v1alpha1.EvictionRequest{}
	if err := w.Requests.Get(t.Context(), v1alpha1.RequestKey(podOf().Obj()), er); err != nil {
		return ""
	}
	joined, until := entryOf(er)
	switch {
	case !joined:
		return "not wanted"
	case until.IsZero():
		return "wanted"
	}
	return until.UTC().Format(time.TimeOnly)
}

func podOf(tolerations ...corev1.Toleration) *builder.PodWrapper {
	return builder.Pod("shop", "db-0").UID("uid-1").Node("n1").Interceptors("i.example.com").
		Change(func(pod *corev1.Pod) { pod.Spec.Tolerations = tolerations })
}

func nodeWith(taints ...corev1.Taint) *corev1.Node {
	node := builder.Node("n1").Obj()
	node.Spec.Taints = taints
	return node
}

func requestUntil(at *metav1.Time) *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "db-0", "uid-1").Requester(v1alpha1.Requester{Name: v1alpha1.TaintEvictionRequester, Deadline: at})
}

func TestWhoIsAskedFor(t *testing.T) {
	going := taint("going", "")
	before := &metav1.Time{Time: in(30)}
	cases := map[string]struct {
		pod     *builder.PodWrapper
		node    *corev1.Node
		request *builder.EvictionRequestWrapper
		// cached makes the cache differ.
		cached func(client.Object) client.Object
		until  string
		calls  []string
		events int
	}{
		"a pod that nobody intercepts": {
			pod: builder.Pod("shop", "db-0").UID("uid-1").Node("n1"), node: nodeWith(going),
		},
		"a pod of a node that stays": {pod: podOf(), node: nodeWith(corev1.Taint{Key: "going", Effect: corev1.TaintEffectNoSchedule})},
		"a pod of a DaemonSet":       {pod: podOf(exists("going", 60)).DaemonSet("agents"), node: nodeWith(going)},
		"a mirror pod":               {pod: podOf(exists("going", 60)).Mirror(), node: nodeWith(going)},
		"a pod that has ended":       {pod: podOf(exists("going", 60)).Phase(corev1.PodSucceeded), node: nodeWith(going)},
		"a pod that goes already":    {pod: podOf(exists("going", 60)).Finalizer("a.example.com/f").Deleting(in(30)), node: nodeWith(going)},
		"a pod without its node":     {pod: podOf(exists("going", 60)), node: builder.Node("n2").Obj()},
		"a pod that has time": {
			pod: podOf(exists("going", 60)), node: nodeWith(going), until: "12:01:00",
			calls: []string{"get pod", "get request", "get request", "apply request"}, events: 2,
		},
		"a pod that stays":              {pod: podOf(forever("going")), node: nodeWith(going), calls: []string{"get pod", "get request"}},
		"a pod that is deleted at once": {pod: podOf(), node: nodeWith(going), calls: []string{"get pod", "get request"}},
		"a pod that was asked for": {
			pod: podOf(exists("going", 60)), node: nodeWith(going), request: requestUntil(before), until: "12:00:30",
			calls: []string{"get pod", "get request"},
		},
		"our own write is not in the cache yet": {
			pod: podOf(exists("going", 60)), node: nodeWith(going), request: requestUntil(before), until: "12:00:30",
			cached: func(o client.Object) client.Object {
				if _, ok := o.(*v1alpha1.EvictionRequest); ok {
					return nil
				}
				return o
			},
			calls: []string{"get pod", "get request"},
		},
		"others ask as well": {
			pod: podOf(exists("going", 60)), node: nodeWith(going), until: "12:01:00",
			request: builder.EvictionRequest("shop", "db-0", "uid-1").Requesters("a.example.com"),
			calls:   []string{"get pod", "get request", "get request", "apply request"}, events: 2,
		},
		"another pod has its name": {
			pod: podOf(exists("going", 60)), node: nodeWith(going), calls: []string{"get pod"},
			cached: func(o client.Object) client.Object {
				if _, ok := o.(*corev1.Pod); ok {
					o.SetUID("uid-0")
				}
				return o
			},
		},
		"the taint is gone": {
			pod: podOf(exists("going", 60)), node: nodeWith(), request: requestUntil(before).Requesters("a.example.com"), until: "not wanted",
			calls: []string{"get request", "apply request", "patch request"},
		},
		"the pod tolerates it forever now": {
			pod: podOf(forever("going")), node: nodeWith(going), request: requestUntil(before).Requesters("a.example.com"), until: "not wanted",
			calls: []string{"get pod", "get request", "get request", "apply request", "patch request"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{tc.pod.Obj(), tc.node}
			if tc.request != nil {
				objects = append(objects, tc.request.Obj())
			}
			w := newWorld(t, tc.cached, objects...)
			if result, err := w.Reconcile(t.Context(), keyOf(tc.pod.Obj())); err != nil || result != (reconcile.Result{}) {
				t.Fatalf("got %+v, %v", result, err)
			}
			if diff := cmp.Diff(tc.calls, w.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.until, w.until(t)); diff != "" {
				t.Errorf("wanted until (-want +got):\n%s", diff)
			}
			if len(w.notes.Events) != tc.events {
				t.Errorf("events %v, want %d", w.notes.Events, tc.events)
			}
		})
	}
}

func keyOf(pod client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
}

func TestNothingIsDecidedBeforeTheCachesAreInSync(t *testing.T) {
	w := newWorld(t, nil, podOf(exists("going", 60)).Obj(), nodeWith(taint("going", "")))
	w.Synced = func() bool { return false }
	result, err := w.Reconcile(t.Context(), keyOf(podOf().Obj()))
	if err != nil || result.RequeueAfter != pause || len(w.calls) > 0 {
		t.Errorf("got %+v, %v, and calls %v", result, err, w.calls)
	}
}

func TestAFailureIsTriedAgain(t *testing.T) {
	w := newWorld(t, nil, podOf(exists("going", 60)).Obj(), nodeWith(taint("going", "")))
	w.APIReader = interceptor.NewClient(w.Requests, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("boom")
		},
	})
	if _, err := w.Reconcile(t.Context(), keyOf(podOf().Obj())); err == nil || err.Error() != "get pod: boom" {
		t.Errorf("error %v", err)
	}
}

// recorded keeps what is added to a queue.
type recorded struct {
	controllers.Queue
	added []string
}

func (q *recorded) Add(item reconcile.Request) { q.added = append(q.added, item.Name) }

func (q *recorded) AddAfter(item reconcile.Request, after time.Duration) {
	q.added = append(q.added, item.Name+" after "+after.String())
}

func TestWhichEventsMatter(t *testing.T) {
	going, ctx := taint("going", ""), t.Context()
	plain := builder.Pod("shop", "web-0").UID("uid-2").Node("n1").Obj()
	w := newWorld(t, nil, podOf().Obj(), plain, builder.Pod("shop", "elsewhere").UID("uid-3").Node("n2").Obj(), nodeWith(going))
	heartbeat := nodeWith(going)
	heartbeat.Labels = map[string]string{"touched": "true"}
	kept := nodeWith(going, corev1.Taint{Key: "kept", Effect: corev1.TaintEffectNoSchedule})
	ours, others := requestUntil(nil).Obj(), builder.EvictionRequest("shop", "db-0", "uid-1").Requesters("a.example.com").Obj()
	untainted := podOf().Node("n2").Obj()
	node, pod, request := w.nodeEvents(), w.podEvents(), requestEvents()
	cases := map[string]struct {
		happens func(controllers.Queue)
		want    []string
	}{
		"a node is tainted": {func(q controllers.Queue) {
			node.Update(ctx, event.UpdateEvent{ObjectOld: nodeWith(), ObjectNew: nodeWith(going)}, q)
		}, []string{"db-0", "web-0"}},
		"a node is untainted": {func(q controllers.Queue) {
			node.Update(ctx, event.UpdateEvent{ObjectOld: nodeWith(going), ObjectNew: nodeWith()}, q)
		}, []string{"db-0", "web-0"}},
		"a heartbeat of a node": {func(q controllers.Queue) {
			node.Update(ctx, event.UpdateEvent{ObjectOld: nodeWith(going), ObjectNew: heartbeat}, q)
		}, nil},
		"a taint that keeps pods from coming": {func(q controllers.Queue) {
			node.Update(ctx, event.UpdateEvent{ObjectOld: nodeWith(going), ObjectNew: kept}, q)
		}, nil},
		"a tainted node is found": {func(q controllers.Queue) { node.Create(ctx, event.CreateEvent{Object: nodeWith(going)}, q) }, []string{"db-0", "web-0"}},
		"another node is found":   {func(q controllers.Queue) { node.Create(ctx, event.CreateEvent{Object: nodeWith()}, q) }, nil},
		"a pod is found":          {func(q controllers.Queue) { pod.Create(ctx, event.CreateEvent{Object: podOf().Obj()}, q) }, []string{"db-0 after 0s"}},
		"a pod changes": {func(q controllers.Queue) {
			pod.Update(ctx, event.UpdateEvent{ObjectOld: podOf().Obj(), ObjectNew: podOf().Obj()}, q)
		}, []string{"db-0 after 1s"}},
		"a pod that nobody intercepts": {func(q controllers.Queue) { pod.Create(ctx, event.CreateEvent{Object: plain}, q) }, nil},
		"a pod of another node":        {func(q controllers.Queue) { pod.Create(ctx, event.CreateEvent{Object: untainted}, q) }, nil},
		"our request is found":         {func(q controllers.Queue) { request.Create(ctx, event.CreateEvent{Object: ours}, q) }, []string{"db-0 after 1s"}},
		"a request of others is found": {func(q controllers.Queue) { request.Create(ctx, event.CreateEvent{Object: others}, q) }, nil},
		"somebody removes our entry": {func(q controllers.Queue) {
			request.Update(ctx, event.UpdateEvent{ObjectOld: ours, ObjectNew: others}, q)
		}, []string{"db-0 after 1s"}},
		"our request goes on":          {func(q controllers.Queue) { request.Update(ctx, event.UpdateEvent{ObjectOld: ours, ObjectNew: ours}, q) }, nil},
		"somebody deletes our request": {func(q controllers.Queue) { request.Delete(ctx, event.DeleteEvent{Object: ours}, q) }, []string{"db-0 after 1s"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := &recorded{}
			tc.happens(q)
			if diff := cmp.Diff(tc.want, q.added); diff != "" {
				t.Errorf("queued (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetupNamesWhatIsMissing(t *testing.T) {
	err := (&Controller{}).SetupWithManager(nil)
	want := "controller taint-eviction: APIReader is not set\nClient is not set\nClock is not set\nOnChange is not set\n" +
		"Recorder is not set\nRequests is not set\nResolver is not set\nSynced is not set"
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
