package conformance

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// awaitTimeout is how long something that the manager does at once may take.
const awaitTimeout = time.Minute

// The constants of the process that these tests go by.
var (
	policy       = process.DefaultPolicy()
	deadline     = policy.HeartbeatDeadline
	skew         = policy.ClockSkew
	startupGrace = policy.StartupGrace
)

// await waits until check has no error.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	cluster.Eventually(t, what, check)
}

// startManager runs a manager in this process until the end of the test. It has
// the webhook of the whole control plane, so tests that start one do not run
// beside each other.
func startManager(t *testing.T, o manager.Options) *manager.Manager {
	t.Helper()
	m, err := drawbridge.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Kill)
	return m
}

// stopManager shuts it down as SIGTERM does.
func stopManager(t *testing.T, m *manager.Manager) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Fatalf("stop the manager: %v", err)
	}
}

// noStartupGrace lets silence count from the start of a manager.
func noStartupGrace(o *app.Options) { o.Policy.StartupGrace = 0 }

// managerUser is the account of the manager, as the request log has it.
func managerUser() string {
	return "system:serviceaccount:" + drawbridge.Namespace + ":" + drawbridge.ServiceAccount
}

// world is a namespace with what a test needs around the manager.
type world struct {
	mgr *manager.Manager
	ns  string
	// admin may do everything. reporter is a user who may only write the status of
	// requests, as an interceptor may; its writes pass the manager's webhook.
	admin, reporter client.Client
	mark            cluster.Mark
}

// newWorld makes a namespace for the test. The manager may be nil as long as
// nobody asks for the time.
func newWorld(t *testing.T, mgr *manager.Manager) *world {
	t.Helper()
	w := &world{mgr: mgr, ns: kube.Namespace(t), admin: asAdmin(t), reporter: as(t, "reporter"), mark: kube.RequestLog().Mark()}
	err := grant(t.Context(), w.admin, w.ns, "reporter", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName},
		Resources: []string{"evictionrequests", "evictionrequests/status"},
		Verbs:     []string{"get", "update", "patch"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// now is the manager's time as the API stores it.
func (w *world) now() metav1.Time { return metav1.NewTime(w.mgr.Clock.Now().Truncate(time.Second)) }

// in is the manager's time in a while, as the API stores it.
func (w *world) in(d time.Duration) *metav1.Time {
	return &metav1.Time{Time: w.mgr.Clock.Now().Add(d).Truncate(time.Second)}
}

// advanceTo moves the manager's clock, which never goes back.
func (w *world) advanceTo(at time.Time) { w.mgr.Clock.AdvanceTo(at) }

// hold forbids the eviction of all pods of the namespace, so that requests stay
// where they are when imperative-eviction.k8s.io is active.
func (w *world) hold(t *testing.T) {
	t.Helper()
	budget := builder.Budget(w.ns, "hold").SelectsAll().MinAvailable("1000").Obj()
	if err := w.admin.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
}

// createPod creates a pod with these interceptors and waits until it runs.
func (w *world) createPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if err := w.admin.Create(t.Context(), pod); err != nil {
		t.Fatalf("create pod: %v", err)
	}
	await(t, "the pod to run", func(ctx context.Context) error {
		if err := w.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s", pod.Status.Phase)
		}
		return nil
	})
	return pod
}

// pod creates a running pod with these interceptors.
func (w *world) pod(t *testing.T, name string, interceptors ...string) *corev1.Pod {
	t.Helper()
	pod := builder.Pod(w.ns, name)
	if len(interceptors) > 0 {
		pod.Interceptors(interceptors...)
	}
	return w.createPod(t, pod.Obj())
}

// request asks for the eviction of a pod and follows what becomes of it.
func (w *world) request(t *testing.T, pod *corev1.Pod, changes ...change) *trace {
	t.Helper()
	er := builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters("drain.example.com").Obj()
	for _, change := range changes {
		change(er)
	}
	tr := follow(t, client.ObjectKeyFromObject(er))
	if err := w.admin.Create(t.Context(), er); err != nil {
		t.Fatalf("create request: %v", err)
	}
	return tr
}

// get reads the request.
func (w *world) get(t *testing.T, key client.ObjectKey) *v1alpha1.EvictionRequest {
	t.Helper()
	er := &v1alpha1.EvictionRequest{}
	if err := w.admin.Get(t.Context(), key, er); err != nil {
		t.Fatalf("get request: %v", err)
	}
	return er
}

// until waits until the request satisfies check and returns it.
func (w *world) until(t *testing.T, key client.ObjectKey, what string, check func(*v1alpha1.EvictionRequest) bool) *v1alpha1.EvictionRequest {
	t.Helper()
	er := &v1alpha1.EvictionRequest{}
	await(t, what, func(ctx context.Context) error {
		er = &v1alpha1.EvictionRequest{}
		if err := w.admin.Get(ctx, key, er); err != nil {
			return err
		}
		if !check(er) {
			return fmt.Errorf("generation %d, status %+v", er.Generation, er.Status)
		}
		return nil
	})
	return er
}

// untilActive waits until it is this interceptor's turn.
func (w *world) untilActive(t *testing.T, key client.ObjectKey, interceptor string) *v1alpha1.EvictionRequest {
	t.Helper()
	return w.until(t, key, interceptor+" to be active", func(er *v1alpha1.EvictionRequest) bool {
		return slices.Contains(er.Status.ActiveInterceptors, interceptor)
	})
}

// untilTrue waits until a condition is True and returns the request.
func (w *world) untilTrue(t *testing.T, key client.ObjectKey, condition string) *v1alpha1.EvictionRequest {
	t.Helper()
	return w.until(t, key, condition+" to be True", func(er *v1alpha1.EvictionRequest) bool {
		return meta.IsStatusConditionTrue(er.Status.Conditions, condition)
	})
}

// syncRequester comes and goes to give the manager something to do.
const syncRequester = "sync.example.com"

// sync makes the manager look at the request now and returns what that left: it
// changes the requesters and waits until observedGeneration has followed. That
// something does not happen is shown by a sync at a time when it could have.
func (w *world) sync(t *testing.T, key client.ObjectKey) *v1alpha1.EvictionRequest {
	t.Helper()
	er := w.updateSpec(t, key, func(er *v1alpha1.EvictionRequest) {
		without := slices.DeleteFunc(slices.Clone(er.Spec.Requesters), func(r v1alpha1.Requester) bool { return r.Name == syncRequester })
		if len(without) == len(er.Spec.Requesters) {
			without = append(without, v1alpha1.Requester{Name: syncRequester})
		}
		er.Spec.Requesters = without
	})
	return w.until(t, key, "the manager to have looked", func(now *v1alpha1.EvictionRequest) bool {
		return now.Status.ObservedGeneration >= er.Generation
	})
}

// updateSpec changes the request as the admin.
func (w *world) updateSpec(t *testing.T, key client.ObjectKey, change change) *v1alpha1.EvictionRequest {
	t.Helper()
	er := &v1alpha1.EvictionRequest{}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		er = &v1alpha1.EvictionRequest{}
		if err := w.admin.Get(t.Context(), key, er); err != nil {
			return err
		}
		change(er)
		return w.admin.Update(t.Context(), er)
	})
	if err != nil {
		t.Fatalf("update request: %v", err)
	}
	return er
}

// tryReport changes the status as an interceptor does and returns the answer. It
// begins again after a conflict.
func (w *world) tryReport(t *testing.T, key client.ObjectKey, changes ...change) error {
	t.Helper()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		er := &v1alpha1.EvictionRequest{}
		if err := w.reporter.Get(t.Context(), key, er); err != nil {
			return err
		}
		together(changes...)(er)
		return w.reporter.Status().Update(t.Context(), er)
	})
}

// report is tryReport for what must be accepted.
func (w *world) report(t *testing.T, key client.ObjectKey, changes ...change) {
	t.Helper()
	if err := w.tryReport(t, key, changes...); err != nil {
		t.Fatalf("report: %v", err)
	}
}

// beats is a heartbeat of the interceptor at that time, with the startTime if it
// is the first one.
func beats(interceptor string, at metav1.Time) change {
	return report(interceptor, func(r *v1alpha1.InterceptorStatus) {
		if r.StartTime == nil {
			r.StartTime = &at
		}
		r.HeartbeatTime = &at
	})
}

// completes ends the interceptor's turn.
func completes(interceptor string, at metav1.Time) change {
	return report(interceptor, func(r *v1alpha1.InterceptorStatus) { r.CompletionTime = &at })
}

// updatePod changes the stored pod.
func (w *world) updatePod(t *testing.T, pod *corev1.Pod, change func(*corev1.Pod)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		change(pod)
		return w.admin.Update(t.Context(), pod)
	})
	if err != nil {
		t.Fatalf("update pod: %v", err)
	}
}

// deletePod deletes the pod and waits until it is gone.
func (w *world) deletePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := w.admin.Delete(t.Context(), pod); err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("delete pod: %v", err)
	}
	waitGone(t, w.admin, pod.DeepCopy())
}

// lives fails the test unless this very pod exists and is not being deleted.
func (w *world) lives(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	got := &corev1.Pod{}
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), got); err != nil {
		t.Errorf("the pod must live: %v", err)
	} else if got.UID != pod.UID || got.DeletionTimestamp != nil {
		t.Errorf("the pod must live: UID %s, want %s; deleted at %v", got.UID, pod.UID, got.DeletionTimestamp)
	}
}

// asked are the requests of the manager in this namespace that keep wants.
func (w *world) asked(t *testing.T, keep func(cluster.Request) bool) cluster.Requests {
	t.Helper()
	requests, err := kube.RequestLog().Since(t.Context(), w.mark)
	if err != nil {
		t.Fatal(err)
	}
	return requests.By(managerUser()).Where(func(r cluster.Request) bool { return r.Namespace == w.ns && keep(r) })
}

// evictCall reports whether a request asks for the eviction of a pod.
func evictCall(r cluster.Request) bool { return r.Resource == "pods" && r.Subresource == "eviction" }

// podName is a name for a pod of its own, by the test.
func podName(t *testing.T) string {
	t.Helper()
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(t.Name())) // It cannot fail.
	return fmt.Sprintf("p-%x", sum.Sum64())
}

// budgetOf is an object of the kind of hold's, for deleting all of them.
func budgetOf(w *world) client.Object { return builder.Budget(w.ns, "").Obj() }
