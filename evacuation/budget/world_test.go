package budget

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	crinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

const (
	shop      = "shop"
	zoneLabel = "zone"
)

// world is an API server in memory, and managers that die at one of their writes. That pods
// are evicted, replaced and counted is shown by test/e2e.
type world struct {
	t      *testing.T
	client client.WithWatch
	clock  *clocktesting.FakeClock
	// writes are counted from 1. The manager dies at dieAt, after the write was stored or
	// before.
	writes, dieAt int
	stored, dead  bool
	// slow is how long each write takes.
	slow     time.Duration
	recorder *eventsclient.FakeRecorder
}

var errDead = errors.New("the manager has died")

// newWorld has a StatefulSet with two pods for each zone, and a request for each pod whose
// turn it is.
func newWorld(t *testing.T, zones []string, budgets ...*builder.EvictionBudgetWrapper) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(noon), recorder: eventsclient.NewFakeRecorder(1000)}
	var objects []client.Object
	for _, zone := range zones {
		objects = append(objects, builder.StatefulSet(shop, "ring-"+zone).UID(types.UID("set-"+zone)).Replicas(2).Obj())
	}
	for i := range 2 {
		for z, zone := range zones {
			pod := w.pod(zone, i, "")
			created := noon.Add(time.Duration(i*len(zones)+z) * time.Second)
			objects = append(objects, pod, builder.EvictionRequest(shop, pod.Name, pod.UID).UID("er-"+pod.UID).Created(created).
				Requesters("drain.example.com").Interceptors(v1alpha1.BudgetInterceptor).Active(v1alpha1.BudgetInterceptor, created).Obj())
		}
	}
	for _, b := range budgets {
		objects = append(objects, b.Clone().UID(types.UID("budget-"+b.Name)).Generation(1).Obj())
	}
	w.client = fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.EvictionBudget{}, &v1alpha1.EvictionRequest{}, &corev1.Pod{}).Build()
	return w
}

// pod of a zone; a later one has another generation of its UID.
func (w *world) pod(zone string, i int, generation string) *corev1.Pod {
	name := fmt.Sprintf("ring-%s-%d", zone, i)
	controller := true
	return builder.Pod(shop, name).UID(types.UID("uid-"+name+generation)).Label(zoneLabel, zone).Label("app", "ring").
		Owner(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "ring-" + zone, UID: types.UID("set-" + zone), Controller: &controller}).
		Change(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.clock.Now().Add(-time.Minute))}}
		}).Obj()
}

// mortal is the client of a manager.
func (w *world) mortal() client.WithWatch {
	return crinterceptor.NewClient(w.client, crinterceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			if w.dead {
				return errDead
			}
			w.clock.Step(w.slow)
			if w.writes++; w.writes != w.dieAt {
				return c.SubResource(sub).Update(ctx, object, options...)
			}
			w.dead = true
			if w.stored {
				if err := c.SubResource(sub).Update(ctx, object, options...); err != nil {
					return err
				}
			}
			return errDead
		},
	})
}

// born returns a manager that begins to live: it sees what there is.
func (w *world) born() *runner {
	w.t.Helper()
	w.dead = false
	c := w.mortal()
	r := newRunner(c, c, Options{Clock: w.clock, Metrics: metrics.NewBudgets(prometheus.NewRegistry()), Watches: &waitfor.Watches{}, Recorder: w.recorder})
	r.synced = func() bool { return true }
	w.see(r)
	return r
}

// see tells a manager what there is, as its informers would.
func (w *world) see(r *runner) {
	w.t.Helper()
	var budgets v1alpha1.EvictionBudgetList
	var pods corev1.PodList
	var requests v1alpha1.EvictionRequestList
	for _, list := range []client.ObjectList{&budgets, &pods, &requests} {
		if err := w.client.List(w.t.Context(), list, client.InNamespace(shop)); err != nil {
			w.t.Fatal(err)
		}
	}
	for i := range budgets.Items {
		r.state.putBudget(&budgets.Items[i])
	}
	there := map[types.UID]bool{}
	for i := range pods.Items {
		there[pods.Items[i].UID] = true
		r.state.putPod(&pods.Items[i], w.clock.Now())
	}
	for uid, pod := range r.state.spaces[shop].pods {
		if !there[uid] {
			r.state.removePod(pod, w.clock.Now())
		}
	}
	for i := range requests.Items {
		r.state.putRequest(&requests.Items[i])
	}
}

// decide makes a manager decide about all budgets, as its queue would. Its own death is no
// failure.
func (w *world) decide(r *runner) {
	w.t.Helper()
	for _, request := range r.state.budgetsOf(shop) {
		if _, err := r.decide(w.t.Context(), request.NamespacedName); err != nil && !w.dead && !apierrors.IsConflict(err) {
			w.t.Error(err)
		}
	}
}

// turn calls the interceptor for a pod.
func (w *world) turn(r *runner, pod *corev1.Pod) (interceptor.Progress, error) {
	return (&turns{r}).Evacuate(w.t.Context(), interceptor.Target{
		Request: types.NamespacedName{Namespace: shop, Name: string(pod.UID)}, RequestUID: "er-" + pod.UID,
		Pod: client.ObjectKeyFromObject(pod), PodUID: pod.UID,
	})
}

// evict ends a pod whose eviction was granted, and its request; another pod comes when
// replace is called.
func (w *world) evict(pod *corev1.Pod) {
	w.t.Helper()
	er := &v1alpha1.EvictionRequest{}
	er.Namespace, er.Name = shop, string(pod.UID)
	for _, object := range []client.Object{pod.DeepCopy(), er} {
		if err := w.client.Delete(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) replace(zone string, i int) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), w.pod(zone, i, "-new")); err != nil {
		w.t.Fatal(err)
	}
}

// scale changes how many pods a zone should have.
func (w *world) scale(zone string, replicas int32) {
	w.t.Helper()
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: shop, Name: "ring-" + zone}, set); err != nil {
		w.t.Fatal(err)
	}
	set.Spec.Replicas = &replicas
	if err := w.client.Update(w.t.Context(), set); err != nil {
		w.t.Fatal(err)
	}
}

// budget reads a budget.
func (w *world) budget(name string) *v1alpha1.EvictionBudget {
	w.t.Helper()
	b := &v1alpha1.EvictionBudget{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: shop, Name: name}, b); err != nil {
		w.t.Fatal(err)
	}
	return b
}
