package hook

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	crinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// world is an API server in memory, and a manager that dies at one of its writes. That
// Jobs run, are owned and are collected is shown by test/e2e.
type world struct {
	t      *testing.T
	client client.WithWatch
	clock  *clocktesting.FakeClock
	hook   *v1alpha1.EvacuationHook
	target interceptor.Target

	// runner is that of the manager that was born last.
	runner *runner

	mu sync.Mutex
	// made counts the Jobs that were created, by name.
	made map[string]int
	// writes are counted from 1. The manager dies at dieAt, after the write was stored or
	// before.
	writes, dieAt int
	stored        bool
	dead          bool
	// blind: nobody may list events.
	blind bool
	// refuse is the answer to who creates something, and refused how often it was given.
	refuse  error
	refused int
}

var errDead = errors.New("the manager has died")

func newWorld(t *testing.T, hook *v1alpha1.EvacuationHook) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(noon), hook: hook, made: map[string]int{}}
	hook.Namespace, hook.Name, hook.UID, hook.Generation = "shop", "dump", "hook-uid", 1
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ledger-0", UID: "pod-uid"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-uid", UID: "request-uid"}}
	er.Spec.Requesters = []v1alpha1.Requester{{Name: "drain.example.com"}}
	w.target = interceptor.Target{
		Request: client.ObjectKeyFromObject(er), RequestUID: er.UID, Pod: client.ObjectKeyFromObject(pod), PodUID: pod.UID, NodeName: "node-1",
	}
	w.client = fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(hook, pod, er).
		WithStatusSubresource(&v1alpha1.EvacuationHook{}, &v1alpha1.EvictionRequest{}, &batchv1.Job{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(client.Object) []string { return nil }).
		WithIndex(&corev1.Event{}, "reason", func(client.Object) []string { return nil }).
		Build()
	return w
}

// mortal is the client of a manager.
func (w *world) mortal() client.WithWatch {
	write := func(do func() error) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.dead {
			return errDead
		}
		if w.writes++; w.writes != w.dieAt {
			return do()
		}
		w.dead = true
		if w.stored {
			if err := do(); err != nil {
				return err
			}
		}
		return errDead
	}
	return crinterceptor.NewClient(w.client, crinterceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, events := list.(*corev1.EventList); events && w.blind {
				return apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("a right is missing"))
			}
			return c.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return write(func() error {
				if w.refuse != nil {
					w.refused++
					return w.refuse
				}
				err := c.Create(ctx, object, options...)
				if err == nil {
					w.made[object.GetName()]++
				}
				return err
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, object, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			return write(func() error { return c.SubResource(sub).Update(ctx, object, options...) })
		},
	})
}

// born returns a manager that begins to live.
func (w *world) born() *named {
	w.t.Helper()
	w.dead = false
	c := refused.NewTracker(w.clock, metrics.NewRefused(prometheus.NewRegistry()), logr.Discard()).WrapWatch(w.mortal())
	r := newRunner(c, c, Options{
		Clock: w.clock, Metrics: metrics.NewHooks(prometheus.NewRegistry()), Bounds: Bounds{MaxTotal: 24 * time.Hour, HTTP: true},
		MaxConcurrent: 1, MaxPerNamespace: 1, HTTP: &httpcall.Client{}, Watches: &waitfor.Watches{}, Recorder: eventsclient.NewFakeRecorder(1000),
	})
	w.runner = r
	if err := r.sweepOnce(w.t.Context()); err != nil && !w.dead {
		w.t.Fatal(err)
	}
	return &named{hookInterceptor: r.hookInterceptor, hook: client.ObjectKeyFromObject(w.hook)}
}

// run is the record of the hook.
func (w *world) run(t *testing.T) v1alpha1.HookRun {
	t.Helper()
	hook := &v1alpha1.EvacuationHook{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.hook), hook); err != nil {
		t.Fatal(err)
	}
	if len(hook.Status.Runs) != 1 {
		t.Fatalf("runs: %+v, want one", hook.Status.Runs)
	}
	return hook.Status.Runs[0]
}

// finish ends all Jobs that run, those of an undo as well.
func (w *world) finish(condition batchv1.JobConditionType) {
	w.t.Helper()
	var jobs batchv1.JobList
	if err := w.client.List(w.t.Context(), &jobs); err != nil {
		w.t.Fatal(err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if ended(job) {
			continue
		}
		job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue, Message: "as the test says"}}
		if err := w.client.Status().Update(w.t.Context(), job); err != nil {
			w.t.Fatal(err)
		}
	}
}

// cancel calls the eviction off.
func (w *world) cancel() {
	w.t.Helper()
	er := &v1alpha1.EvictionRequest{}
	if err := w.client.Get(w.t.Context(), w.target.Request, er); err != nil {
		w.t.Fatal(err)
	}
	meta.SetStatusCondition(&er.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionCanceled, Status: metav1.ConditionTrue, Reason: "NoRequesters"})
	if err := w.client.Status().Update(w.t.Context(), er); err != nil {
		w.t.Fatal(err)
	}
}

func jobHook(change ...func(*v1alpha1.EvacuationHookSpec)) *v1alpha1.EvacuationHook {
	template := func(image string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "` + image + `",
			"args": ["${pod.metadata.name + '@' + request.nodeName}"]}]}}}}`)}
	}
	hook := &v1alpha1.EvacuationHook{Spec: v1alpha1.EvacuationHookSpec{
		Job: &v1alpha1.HookJob{Template: template("dump")}, Retries: new(int32(1)), OnFailure: v1alpha1.HookHold,
		Undo: &v1alpha1.HookUndo{Job: &v1alpha1.HookJob{Template: template("undump")}},
	}}
	for _, f := range change {
		f(&hook.Spec)
	}
	return hook
}

// names are those of Jobs without what is made up of the request.
func (w *world) names() map[string]int {
	short := map[string]int{}
	for name, n := range w.made {
		parts := strings.Split(name, "-")
		short[strings.Join(append(parts[:len(parts)-2], parts[len(parts)-1]), "-")] += n
	}
	return short
}
