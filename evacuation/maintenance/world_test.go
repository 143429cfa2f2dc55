package maintenance_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/maintenance"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// world is an API server and its informers in memory: every write is counted and
// becomes an event at once. It knows only what these controllers ask of it; what
// Kubernetes does is proved on the embedded control plane.
type world struct {
	client.WithWatch
	clock  *testingclock.FakeClock
	events *events.FakeRecorder

	plans, nodes, pods map[types.NamespacedName]client.Object
	namespaces         map[types.NamespacedName]client.Object
	requests           map[types.NamespacedName]*v1alpha1.EvictionRequest
	podsByNode         map[string]map[types.NamespacedName]*corev1.Pod

	version   int
	writes    map[string]int
	liveLists int
	liveReads int
	lists     int
	parts     map[string]maintenance.Part
	queues    []*stepQueue
	// hidden are pods that the cache does not show.
	hidden []*corev1.Pod
	// refusal is the answer to evictions of pods of DaemonSets; nil if they succeed.
	refusal error
	// stuck is the part whose workers are all busy with something else, empty if none is.
	stuck string
	// calling happens at each eviction of a pod of a DaemonSet, before the answer; nil for nothing.
	calling func()
	// meanwhile happens once, when somebody has read a pod and looks for its request.
	meanwhile func()
}

func newWorld(tb testing.TB, wait time.Duration) *world {
	tb.Helper()
	w := &world{
		clock:  testingclock.NewFakeClock(noon),
		events: events.NewFakeRecorder(100000),
		plans:  map[types.NamespacedName]client.Object{}, nodes: map[types.NamespacedName]client.Object{}, pods: map[types.NamespacedName]client.Object{},
		namespaces: map[types.NamespacedName]client.Object{},
		requests:   map[types.NamespacedName]*v1alpha1.EvictionRequest{},
		podsByNode: map[string]map[types.NamespacedName]*corev1.Pod{},
		writes:     map[string]int{},
	}
	c := &maintenance.Controller{
		Client: w, APIReader: live{w}, Requests: w, Evict: w.evict, Clock: w.clock, Resolver: registration.FromAnnotation(), Synced: func() bool { return true },
		Recorder: w.events, Metrics: metrics.NewMaintenance(prometheus.NewRegistry()),
		Policy: maintenance.PodPolicy{Wait: wait, SilentAfter: 10 * time.Minute, OwnerDeadline: 20 * time.Minute, TerminatingAfter: time.Minute},
	}
	parts, err := c.Parts(func() controllers.Queue {
		q := &stepQueue{clock: w.clock, ready: map[reconcile.Request]struct{}{}, later: map[reconcile.Request]time.Time{}}
		w.queues = append(w.queues, q)
		return q
	})
	if err != nil {
		tb.Fatal(err)
	}
	w.parts = parts
	return w
}

// store is where objects of the kind stand, with the name of the part that hears of
// them.
func (w *world) store(obj client.Object) (map[types.NamespacedName]client.Object, string) {
	switch obj.(type) {
	case *v1alpha1.NodeMaintenance:
		return w.plans, "plans"
	case *corev1.Node:
		return w.nodes, "nodes"
	case *corev1.Pod:
		return w.pods, "pods"
	case *corev1.Namespace:
		return w.namespaces, "namespaces"
	default:
		panic(fmt.Sprintf("no store for %T", obj))
	}
}

// put stores an object and tells of it.
func (w *world) put(obj client.Object) {
	w.version++
	obj.SetResourceVersion(strconv.Itoa(w.version))
	store, name := w.store(obj)
	key := client.ObjectKeyFromObject(obj)
	before := store[key]
	store[key] = obj
	if pod, ok := obj.(*corev1.Pod); ok {
		if w.podsByNode[pod.Spec.NodeName] == nil {
			w.podsByNode[pod.Spec.NodeName] = map[types.NamespacedName]*corev1.Pod{}
		}
		w.podsByNode[pod.Spec.NodeName][key] = pod
	}
	part := w.parts[name]
	if before == nil {
		part.Events.Create(context.Background(), event.CreateEvent{Object: obj}, part.Queue)
		return
	}
	part.Events.Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: obj}, part.Queue)
}

// remove removes an object and tells of it.
func (w *world) remove(obj client.Object) {
	store, name := w.store(obj)
	key := client.ObjectKeyFromObject(obj)
	before := store[key]
	delete(store, key)
	if pod, ok := before.(*corev1.Pod); ok {
		delete(w.podsByNode[pod.Spec.NodeName], key)
	}
	part := w.parts[name]
	part.Events.Delete(context.Background(), event.DeleteEvent{Object: before}, part.Queue)
}

// putRequest stores a request and tells of it.
func (w *world) putRequest(er *v1alpha1.EvictionRequest) {
	key := client.ObjectKeyFromObject(er)
	before := w.requests[key]
	w.requests[key] = er
	part := w.parts["requests"]
	if before == nil {
		part.Events.Create(context.Background(), event.CreateEvent{Object: er}, nil)
		return
	}
	part.Events.Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: er}, nil)
}

// settle reconciles until nothing is due, moving the clock to what comes within a
// minute.
func (w *world) settle(tb testing.TB) {
	tb.Helper()
	until := w.clock.Now().Add(time.Minute)
	for {
		w.reconcile(tb)
		next, ok := w.next()
		if !ok || next.After(until) {
			return
		}
		if next.After(w.clock.Now()) {
			w.clock.SetTime(next)
		}
	}
}

// next is when the first key of any queue is due.
func (w *world) next() (time.Time, bool) {
	var first time.Time
	found := false
	for _, q := range w.queues {
		if len(q.later) > 0 && (!found || q.first.Before(first)) {
			first, found = q.first, true
		}
	}
	return first, found
}

// reconcile handles all that is due now.
func (w *world) reconcile(tb testing.TB) {
	tb.Helper()
	for busy := true; busy; {
		busy = false
		for i, name := range []string{"plans", "nodes", "pods", "evictions"} {
			if name == w.stuck {
				continue
			}
			for _, key := range w.queues[i].due() {
				busy = true
				result, err := w.parts[name].Reconcile(tb.Context(), key)
				if err != nil {
					tb.Fatalf("reconcile %s %s: %v", name, key, err)
				}
				if result.RequeueAfter > 0 {
					w.queues[i].AddAfter(key, result.RequeueAfter)
				}
			}
		}
	}
}

func (w *world) Get(_ context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if er, ok := obj.(*v1alpha1.EvictionRequest); ok {
		if happens := w.meanwhile; happens != nil {
			w.meanwhile = nil
			happens()
		}
		found, ok := w.requests[key]
		if !ok {
			return apierrors.NewNotFound(v1alpha1.Resource("evictionrequests"), key.Name)
		}
		*er = *found
		return nil
	}
	store, name := w.store(obj)
	found, ok := store[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: name}, key.Name)
	}
	switch to := obj.(type) {
	case *v1alpha1.NodeMaintenance:
		m := found.(*v1alpha1.NodeMaintenance)
		if shared := (&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy; shared == nil || !*shared {
			m = m.DeepCopy()
		}
		*to = *m
	case *corev1.Node:
		*to = *found.(*corev1.Node)
	case *corev1.Pod:
		*to = *found.(*corev1.Pod)
		to.Spec.Tolerations = nil // The cache does not have them.
	case *corev1.Namespace:
		*to = *found.(*corev1.Namespace)
	}
	return nil
}

func (w *world) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	w.lists++
	switch to := list.(type) {
	case *v1alpha1.NodeMaintenanceList:
		for _, m := range w.plans {
			to.Items = append(to.Items, *m.(*v1alpha1.NodeMaintenance))
		}
	case *corev1.NodeList:
		for _, n := range w.nodes {
			to.Items = append(to.Items, *n.(*corev1.Node))
		}
	case *corev1.PodList:
		node, _ := strings.CutPrefix(strings.TrimPrefix(o.FieldSelector.String(), index.PodsByNode+"="), "spec.nodeName=")
		for _, pod := range w.podsByNode[node] {
			cached := *pod
			cached.Spec.Tolerations = nil
			to.Items = append(to.Items, cached)
		}
	case *v1alpha1.EvictionRequestList:
		requester := strings.TrimPrefix(o.FieldSelector.String(), index.RequestsByMaintenance+"=")
		for _, er := range w.requests {
			if slices.ContainsFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == requester }) {
				to.Items = append(to.Items, *er)
			}
		}
	}
	return nil
}

// stepQueue is a queue that a test empties. Failures are not expected.
type stepQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	clock *testingclock.FakeClock
	ready map[reconcile.Request]struct{}
	later map[reconcile.Request]time.Time
	// first is the earliest of them.
	first time.Time
}

func (q *stepQueue) Add(key reconcile.Request) { q.ready[key] = struct{}{} }

func (q *stepQueue) AddAfter(key reconcile.Request, after time.Duration) {
	if after <= 0 {
		q.Add(key)
		return
	}
	at := q.clock.Now().Add(after)
	if before, ok := q.later[key]; ok && !at.Before(before) {
		return
	}
	if len(q.later) == 0 || at.Before(q.first) {
		q.first = at
	}
	q.later[key] = at
}

// due takes out what is due.
func (q *stepQueue) due() []reconcile.Request {
	if now := q.clock.Now(); len(q.later) > 0 && !q.first.After(now) {
		q.first = now.Add(time.Hour)
		for key, at := range q.later {
			switch {
			case !at.After(now):
				delete(q.later, key)
				q.ready[key] = struct{}{}
			case at.Before(q.first):
				q.first = at
			}
		}
	}
	keys := slices.Collect(maps.Keys(q.ready))
	clear(q.ready)
	return keys
}
