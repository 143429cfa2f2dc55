package order

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	storageLast = "storage.order.drawbridge.dev"
	webLast     = "web.order.drawbridge.dev"
)

// lastOf registers that pods of an application leave after those of another one.
func lastOf(name, app, after string) *builder.EvictionInterceptorWrapper {
	return builder.EvictionInterceptor(name).Pods(builder.AppLabel, app).After(builder.AppLabel, after)
}

// podOn is a pod of an application on the node n1. Its UID is its name.
func podOn(app, name string) *builder.PodWrapper {
	return builder.Pod("shop", name).UID(types.UID(name)).Node("n1").Label(builder.AppLabel, app)
}

// asked is the request of such a pod, planned with these interceptors.
func asked(name string, interceptors ...string) *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", name, types.UID(name)).UID(types.UID("er-" + name)).Requesters("drain.example.com").NodeName("n1").Interceptors(interceptors...)
}

// inTurn is one with a turn of the order.
func inTurn(name string) *builder.EvictionRequestWrapper { return asked(name, Name).Active(Name, t0) }

// ofStorage is the pod storage-0 as the SDK names it.
func ofStorage() interceptor.Target {
	return interceptor.Target{
		Request: types.NamespacedName{Namespace: "shop", Name: "storage-0"}, RequestUID: "er-storage-0",
		Pod: types.NamespacedName{Namespace: "shop", Name: "storage-0"}, PodUID: "storage-0", NodeName: "n1", ActivatedAt: t0,
	}
}

// node is an Order over fake clients: that of the cache, and live that of the API server.
type node struct {
	*Order
	cached, live client.Client
	clock        *testingclock.FakeClock
	events       []string
}

// newNode has what the cache has; the API server has the nodes of live, or the same ones.
func newNode(t *testing.T, registrations []*builder.EvictionInterceptorWrapper, cached []client.Object, live ...client.Object) *node {
	t.Helper()
	namespace := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}}
	known := registration.Known{Namespaces: []corev1.Namespace{namespace}}
	for _, w := range registrations {
		known.Registrations = append(known.Registrations, *w.Obj())
	}
	n := &node{clock: testingclock.NewFakeClock(t0)}
	b := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(&namespace).WithObjects(cached...)
	index.All(func(object client.Object, name string, extract client.IndexerFunc) {
		b.WithIndex(object, name, extract)
	})
	n.cached = b.Build()
	n.live = n.cached
	if live != nil {
		n.live = fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(live...).Build()
	}
	n.Order = &Order{
		Client: n.cached, APIReader: n.live, Clock: n.clock, Recorder: n,
		Registry: registration.Static(registration.Options{Namespace: "drawbridge-system"}, known),
	}
	return n
}

// Eventf notes the events, by what they are about.
func (n *node) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	kind := fmt.Sprintf("%T", regarding)
	if ref, ok := regarding.(*corev1.ObjectReference); ok {
		kind = ref.Kind
	}
	n.events = append(n.events, kind+" "+reason)
}

func (n *node) evacuate(t *testing.T, target interceptor.Target) interceptor.Progress {
	t.Helper()
	progress, err := n.Evacuate(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return progress
}

// delete deletes an object from the cache.
func (n *node) delete(t *testing.T, object client.Object) {
	t.Helper()
	if err := n.cached.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func objects(all ...client.Object) []client.Object { return all }

func TestWhichPodsAreWaitedFor(t *testing.T) {
	free, cordoned := builder.Node("n1").Obj(), builder.Node("n1").Cordoned().Obj()
	web := podOn("web", "web-0")
	request := asked("web-0", "a.example.com")
	cases := map[string]struct {
		node   *corev1.Node
		others []client.Object
		waits  bool
	}{
		"nobody":                                            {cordoned, nil, false},
		"one of a drained node":                             {cordoned, objects(web.Obj()), true},
		"one that Karpenter drains":                         {builder.Node("n1").Taint("karpenter.sh/disrupted", "", corev1.TaintEffectNoSchedule).Obj(), objects(web.Obj()), true},
		"one that stays":                                    {free, objects(web.Obj()), false},
		"one whose eviction is requested":                   {free, objects(web.Obj(), request.Obj()), true},
		"one whose request has no plan yet":                 {free, objects(web.Obj(), builder.EvictionRequest("shop", "web-0", "web-0").Requesters("drain.example.com").Obj()), true},
		"one whose request was canceled":                    {free, objects(web.Obj(), request.Clone().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj()), false},
		"one whose request was canceled, of a drained node": {cordoned, objects(web.Obj(), request.Clone().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj()), true},
		"one that nobody requests any more":                 {free, objects(web.Obj(), builder.EvictionRequest("shop", "web-0", "web-0").Obj()), false},
		"one whose hook is tried":                           {free, objects(web.Obj(), builder.EvictionRequest("shop", "web-0", "web-0").Requesters(v1alpha1.HookTestRequester).Obj()), false},
		"one that is being deleted":                         {free, objects(web.Clone().Finalizer("example.com/f").Deleting(t0).Obj()), true},
		"one that has ended":                                {cordoned, objects(web.Clone().Phase(corev1.PodSucceeded).Obj()), false},
		"one that has failed, and is requested":             {free, objects(web.Clone().Phase(corev1.PodFailed).Obj(), request.Obj()), false},
		"one of a DaemonSet":                                {cordoned, objects(web.Clone().DaemonSet("net").Obj()), false},
		"a mirror pod":                                      {cordoned, objects(web.Clone().Mirror().Obj()), false},
		"one of another node":                               {cordoned, objects(web.Clone().Node("n2").Obj(), request.Obj()), false},
		"one that is not selected":                          {cordoned, objects(podOn("cache", "web-0").Obj(), request.Obj()), false},
		"one of the pod's own application":                  {cordoned, objects(podOn("storage", "storage-1").Obj()), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all := append(objects(tc.node, podOn("storage", "storage-0").Obj(), inTurn("storage-0").Obj()), tc.others...)
			n := newNode(t, []*builder.EvictionInterceptorWrapper{lastOf(storageLast, "storage", "web")}, all)
			want := interceptor.Progress{Done: true, Message: "No pod is left on node n1 that leaves before this one."}
			if tc.waits {
				want = interceptor.Progress{Message: "Waiting for 1 pod of node n1 to leave, at most 10m: shop/web-0.", CheckAfter: 10 * time.Minute}
			}
			if diff := cmp.Diff(want, n.evacuate(t, ofStorage())); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
			if len(n.events) > 0 {
				t.Errorf("events: %q", n.events)
			}
		})
	}
}

// The cache may not show yet that the node is cordoned, nor the pod itself.
func TestTheCacheMayBeBehind(t *testing.T) {
	storage := []*builder.EvictionInterceptorWrapper{lastOf(storageLast, "storage", "web")}
	n := newNode(t, storage, objects(builder.Node("n1").Obj(), podOn("storage", "storage-0").Obj(), podOn("web", "web-0").Obj(), inTurn("storage-0").Obj()), builder.Node("n1").Cordoned().Obj())
	if got := n.evacuate(t, ofStorage()); got.Done {
		t.Errorf("it goes on while the node is drained: %+v", got)
	}
	unseen := newNode(t, storage, objects(builder.Node("n1").Cordoned().Obj()))
	want := interceptor.Progress{Message: "The pods of the node are not known yet.", CheckAfter: soon}
	if diff := cmp.Diff(want, unseen.evacuate(t, ofStorage())); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func TestWhoNeverWaits(t *testing.T) {
	storage := []*builder.EvictionInterceptorWrapper{lastOf(storageLast, "storage", "web")}
	cases := map[string]struct {
		registrations []*builder.EvictionInterceptorWrapper
		change        func(*interceptor.Target)
		want          string
	}{
		"on no node":                    {storage, func(t *interceptor.Target) { t.NodeName = "" }, "The pod is on no node."},
		"on a lost node":                {storage, func(t *interceptor.Target) { t.NodeLost = true }, "The node is lost: no pod leaves it any more."},
		"without its registration":      {nil, nil, "No registration says any more which pods leave before this one."},
		"on a node that does not exist": {storage, func(t *interceptor.Target) { t.NodeName = "n2" }, "No pod is left on node n2 that leaves before this one."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := ofStorage()
			if tc.change != nil {
				tc.change(&target)
			}
			self := podOn("storage", "storage-0")
			if target.NodeName != "" {
				self.Node(target.NodeName)
			}
			n := newNode(t, tc.registrations, objects(builder.Node("n1").Cordoned().Obj(), self.Obj(), podOn("web", "web-0").Obj(), inTurn("storage-0").Obj()))
			if diff := cmp.Diff(interceptor.Progress{Done: true, Message: tc.want}, n.evacuate(t, target)); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
			if len(n.following.of) > 0 {
				t.Errorf("it is still followed: %v", n.following.of)
			}
		})
	}
}

func TestAfterTheTimeoutItGoesOn(t *testing.T) {
	registrations := []*builder.EvictionInterceptorWrapper{lastOf(storageLast, "storage", "web").AfterTimeout(3 * time.Minute)}
	n := newNode(t, registrations, objects(builder.Node("n1").Cordoned().Obj(), podOn("storage", "storage-0").Obj(), podOn("web", "web-0").Obj(), inTurn("storage-0").Obj()))
	n.clock.Step(time.Minute)
	want := interceptor.Progress{Message: "Waiting for 1 pod of node n1 to leave, at most 3m: shop/web-0.", CheckAfter: 2 * time.Minute}
	if diff := cmp.Diff(want, n.evacuate(t, ofStorage())); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	n.clock.Step(2 * time.Minute)
	want = interceptor.Progress{Done: true, Message: "Not waiting any longer after 3m for 1 pod of node n1: shop/web-0."}
	if diff := cmp.Diff(want, n.evacuate(t, ofStorage())); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"EvictionRequest OrderTimedOut", "Pod OrderTimedOut"}, n.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Two registrations that are no circles by themselves are one together. Who was planned without
// the order does not wait, so that there is none then.
func TestACircleOfRegistrationsIsBroken(t *testing.T) {
	registrations := []*builder.EvictionInterceptorWrapper{lastOf(storageLast, "storage", "web"), lastOf(webLast, "web", "storage")}
	pods := objects(builder.Node("n1").Cordoned().Obj(), podOn("storage", "storage-0").Obj(), podOn("web", "web-0").Obj())
	for name, requests := range map[string][]client.Object{
		"both in their turns":     objects(inTurn("storage-0").Obj(), inTurn("web-0").Obj()),
		"one goes already":        objects(inTurn("storage-0").Obj(), asked("web-0", Name).Processed(Name).Active(v1alpha1.ImperativeEvictionInterceptor, t0).Obj()),
		"one has not been called": objects(inTurn("storage-0").Obj()),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, registrations, slices.Concat(pods, requests))
			want := interceptor.Progress{Done: true, Message: "Not waiting for 1 pod, because they would wait for each other: shop/web-0."}
			if diff := cmp.Diff(want, n.evacuate(t, ofStorage())); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"EvictionRequest OrderCircle", "Pod OrderCircle"}, n.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	n := newNode(t, registrations, append(slices.Clone(pods), inTurn("storage-0").Obj(), asked("web-0", "a.example.com").Obj()))
	if got := n.evacuate(t, ofStorage()); got.Done {
		t.Errorf("it does not wait for one that was planned before there was an order: %+v", got)
	}
}

// What happens on its node wakes a pod as long as it waits.
func TestWhoIsWoken(t *testing.T) {
	registrations := []*builder.EvictionInterceptorWrapper{lastOf(storageLast, "storage", "web")}
	web, storage, request := podOn("web", "web-0").Obj(), podOn("storage", "storage-0").Obj(), inTurn("storage-0").Obj()
	n := newNode(t, registrations, objects(builder.Node("n1").Cordoned().Obj(), storage, web, request))
	wakes := func(object client.Object, want bool) {
		t.Helper()
		got := n.waiting(t.Context(), object)
		if slices.Contains(got, ofStorage().Request) != want || len(got) > 1 {
			t.Errorf("%T %s wakes %v, want the request to be among them: %t", object, object.GetName(), got, want)
		}
	}
	wakes(web, false)
	if n.evacuate(t, ofStorage()).Done {
		t.Fatal("it does not wait")
	}
	wakes(web, true)
	wakes(asked("web-0").Obj(), true)
	wakes(builder.Node("n1").Obj(), true)
	wakes(builder.Node("n2").Obj(), false)
	wakes(podOn("web", "web-1").Node("n2").Obj(), false)
	n.delete(t, web)
	if !n.evacuate(t, ofStorage()).Done {
		t.Error("it waits for a pod that is gone")
	}
	wakes(storage, false)

	n.following.follow("n1", ofStorage().Request)
	if err := n.Gone(t.Context(), ofStorage()); err != nil {
		t.Fatal(err)
	}
	wakes(storage, false)
	n.following.follow("n1", ofStorage().Request)
	n.delete(t, request)
	wakes(storage, false)
	if len(n.following.of) > 0 {
		t.Errorf("it is still followed: %v", n.following.of)
	}
}
