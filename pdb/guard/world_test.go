package guard

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	clientinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	interA = "a.example.com"
	interB = "b.example.com"
)

// bench is a controller with a fake API server, which is its cache as well, a
// queue that is worked off by hand, and a clock that stands still. What budgets do
// is not proved here.
type bench struct {
	*Controller
	t        *testing.T
	api      client.WithWatch
	clock    *testingclock.FakeClock
	registry *prometheus.Registry
	recorder *recorder
	// writes are the calls that change things, in their order.
	writes []string
	// fail, if set, is asked before each of them.
	fail func(call string) error
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "drawbridge-guard", UID: "role-1"}}
	b := &bench{t: t, clock: testingclock.NewFakeClock(t0), registry: prometheus.NewRegistry(), recorder: &recorder{}}
	b.api = fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(append(objects, role)...).
		WithStatusSubresource(&v1alpha1.EvictionRequest{}, &policyv1.PodDisruptionBudget{}).Build()
	counted := clientinterceptor.NewClient(b.api, b.counting())
	b.Controller = &Controller{
		Client: counted, APIReader: counted, Clock: b.clock, Resolver: registration.FromAnnotation(), Synced: func() bool { return true },
		Registrations: registrations{}, OnChange: func(func()) {}, Preflights: asks(nil), Holds: holds{}, Native: nativeTurns{},
		ExcludedNamespaces: []string{"kube-system"}, Owner: role.Name, Recorder: b.recorder, Metrics: metrics.NewGuard(b.registry),
		use: newBudgetUse(), written: newLastWritten(), owners: newOwners(),
	}
	b.queue = &dueQueue{
		TypedRateLimitingInterface: controllers.NewQueue(b.clock)("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
		clock:                      b.clock, due: map[reconcile.Request]time.Time{},
	}
	t.Cleanup(b.queue.ShutDown)
	return b
}

// dueQueue brings what was put off when it is asked for, by the clock that stands still.
// The queue of production has a goroutine for it, which a busy machine runs some steps of
// that clock later.
type dueQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	clock *testingclock.FakeClock
	due   map[reconcile.Request]time.Time
}

func (q *dueQueue) AddAfter(key reconcile.Request, after time.Duration) {
	at := q.clock.Now().Add(after)
	if before, ok := q.due[key]; !ok || at.Before(before) {
		q.due[key] = at
	}
}

func (q *dueQueue) Len() int {
	for key, at := range q.due {
		if !at.After(q.clock.Now()) {
			delete(q.due, key)
			q.Add(key)
		}
	}
	return q.TypedRateLimitingInterface.Len()
}

func (b *bench) counting() clientinterceptor.Funcs {
	note := func(verb string, obj client.Object) error {
		kind := fmt.Sprintf("%T", obj)
		call := verb + " " + kind[len("*v1."):] + " " + obj.GetNamespace() + "/" + obj.GetName()
		if b.fail != nil {
			if err := b.fail(call); err != nil {
				return err
			}
		}
		b.writes = append(b.writes, call)
		return nil
	}
	return clientinterceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := note("create", obj); err != nil {
				return err
			}
			obj.SetUID(types.UID("uid-of-" + obj.GetName()))
			obj.SetGeneration(1)
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if err := note("update", obj); err != nil {
				return err
			}
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := note("delete", obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := note("patch", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}
}

// look enqueues a pod as an event of it would.
func (b *bench) observe(name string) {
	b.t.Helper()
	b.enqueue(b.t.Context(), b.pod(name), b.queue)
}

// work works off the queue and returns the writes that this took.
func (b *bench) work() []string {
	b.t.Helper()
	b.writes = nil
	for range 100 {
		if b.queue.Len() == 0 {
			return b.writes
		}
		key, _ := b.queue.Get()
		result, err := b.Reconcile(b.t.Context(), key)
		b.queue.Done(key)
		if err != nil {
			b.t.Fatalf("reconcile %v: %v", key, err)
		}
		if result.RequeueAfter > 0 {
			b.queue.AddAfter(key, result.RequeueAfter)
		}
	}
	b.t.Fatal("the queue does not run empty")
	return nil
}

func (b *bench) pod(name string) *corev1.Pod {
	b.t.Helper()
	pod := &corev1.Pod{}
	if err := b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
		b.t.Fatal(err)
	}
	return pod
}

// budget is what has the guard's name, nil for nothing.
func (b *bench) guardBudget() *policyv1.PodDisruptionBudget {
	b.t.Helper()
	pdb := &policyv1.PodDisruptionBudget{}
	err := b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: v1alpha1.GuardBudgetName}, pdb)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return pdb
}

// count does what the disruption controller does.
func (b *bench) count() {
	b.t.Helper()
	before := b.guardBudget()
	after := before.DeepCopy()
	after.Status.ObservedGeneration = after.Generation
	if err := b.api.Status().Update(b.t.Context(), after); err != nil {
		b.t.Fatal(err)
	}
	b.budgetChanged(b.t.Context(), before, after, false, b.queue)
}

// store writes a request and does what its event would.
func (b *bench) store(er *v1alpha1.EvictionRequest) {
	b.t.Helper()
	err := b.api.Create(b.t.Context(), er.DeepCopy())
	if err != nil {
		stored := &v1alpha1.EvictionRequest{}
		if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(er), stored); err != nil {
			b.t.Fatal(err)
		}
		stored.Status = er.Status
		if err := b.api.Status().Update(b.t.Context(), stored); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, key := range controllers.PodOfRequest(b.t.Context(), er) {
		b.queue.Add(key)
	}
}

// guarded lists the pods with the label.
func (b *bench) guarded() []string {
	b.t.Helper()
	list := &corev1.PodList{}
	if err := b.api.List(b.t.Context(), list, client.MatchingLabels{v1alpha1.GuardLabel: v1alpha1.GuardClosed}); err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

// counted is the gauge of pods, without zeros.
func (b *bench) counted() map[string]int { return b.gauge("drawbridge_guard_pods") }

// budgets is the gauge of budgets, without zeros.
func (b *bench) budgets() map[string]int { return b.gauge("drawbridge_guard_budgets") }

func (b *bench) gauge(name string) map[string]int {
	b.t.Helper()
	counts := map[string]int{}
	for labels, value := range builder.Series(b.t, b.registry, name) {
		counts[labels] = int(value)
	}
	return counts
}

// webPod runs and names an interceptor.
func webPod(name string) *builder.PodWrapper {
	return builder.Pod("shop", name).UID(types.UID("uid-"+name)).Node("n1").Label("app", "web").Ready().Interceptors(interA)
}

// request is one for that pod, with that plan.
func request(pod string, plan ...string) *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", pod, types.UID("uid-"+pod)).UID(types.UID("er-" + pod)).Requesters("r.example.com").Interceptors(plan...)
}

// recorder keeps events as "Kind Reason".
type recorder struct{ events []string }

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	kind := regarding.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", regarding)
	}
	r.events = append(r.events, kind+" "+reason)
}

// registrations are fixed, and the same for all pods.
type registrations map[string]registration.Info

func (r registrations) RegistrationOf(name string, _ *corev1.Pod) (registration.Info, bool) {
	registration, ok := r[name]
	return registration, ok
}

// holds are the reasons to hold pods, by their names.
type holds map[string]string

func (h holds) Held(pod *corev1.Pod) (string, bool) {
	why, held := h[pod.Name]
	return why, held
}

// OnPodChange does nothing: these answers change only between two looks.
func (h holds) OnPodChange(func(types.NamespacedName)) {}

// nativeTurns are the responders that the native Evictions of pods wait for, by UID; "" is the
// turn of the one that evicts.
type nativeTurns map[string]string

func (n nativeTurns) Stage(_ context.Context, pod types.NamespacedName, _ *v1alpha1.EvictionRequest) (runs, last bool, err error) {
	responder, runs := n[pod.Name]
	return runs, runs && responder == "", nil
}

func (nativeTurns) OnPodChange(func(types.NamespacedName)) {}

// failing is an API server that cannot be read, but for pods.
type failing struct {
	client.Reader
	err error
}

func (f failing) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*corev1.Pod); ok {
		return f.Reader.Get(ctx, key, obj, opts...)
	}
	return f.err
}
