package evictor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// failureLog keeps what was counted as a failed eviction.
type failureLog struct {
	failed []string
	// then is called after each.
	then func()
}

func (l *failureLog) ImperativeEvictionFailed(namespace, name, pod string) {
	defer l.then()
	l.failed = append(l.failed, namespace+"/"+name+" "+pod)
}

func (l *failureLog) Forget(namespace, name string) {
	l.failed = slices.DeleteFunc(l.failed, func(failed string) bool { return strings.HasPrefix(failed, namespace+"/"+name+" ") })
}

// bench is an evictor over a fake API server whose answers to evictions are
// given. It proves nothing about evictions or budgets, only what is done with the
// answers.
type bench struct {
	*Reconciler
	t        *testing.T
	server   client.WithWatch
	clock    *testingclock.FakeClock
	log      *builder.NoteLog
	failures *failureLog
	registry *prometheus.Registry
	// answers are used up one by one; calls are what was asked.
	answers []error
	calls   []target
	graces  []*int64
	// consents are what EvictionBudgets say, one by one, each after thinking, and asked is how often
	// they were asked; since is the time of the last one. deletions are used up as answers are.
	consents []disruption.Consent
	thinking time.Duration
	// meanwhile happens before a pod is deleted.
	meanwhile func()
	asked     int
	since     time.Time
	deletions []error
	deleted   []target
	// applyError is the answer to the next report.
	applyError error
	applied    int
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{
		t: t, clock: testingclock.NewFakeClock(at(0)), log: &builder.NoteLog{}, failures: &failureLog{then: func() {}}, registry: prometheus.NewRegistry(), meanwhile: func() {},
		server: fake.NewClientBuilder().WithScheme(builder.Scheme(t)).
			WithStatusSubresource(&v1alpha1.EvictionRequest{}).WithObjects(objects...).Build(),
	}
	b.Reconciler = &Reconciler{
		Client:    interceptor.NewClient(b.server, interceptor.Funcs{SubResourceApply: b.apply}),
		APIReader: b.server, Clock: b.clock, Policy: DefaultPolicy(), Recorder: b.log,
		Metrics: metrics.NewEvictor(b.registry), Failures: b.failures,
		Synced: func() bool { return true }, Guarded: func(*corev1.Pod) bool { return false },
	}
	b.init(func(_ context.Context, target target, grace *int64) error {
		if len(b.answers) == 0 {
			t.Fatalf("unexpected eviction of %v", target)
		}
		answer := b.answers[0]
		b.answers, b.calls, b.graces = b.answers[1:], append(b.calls, target), append(b.graces, grace)
		return answer
	}, func(_ context.Context, target target, grace *int64) error {
		if len(b.deletions) == 0 {
			t.Fatalf("unexpected deletion of %v", target)
		}
		answer := b.deletions[0]
		b.deletions, b.deleted, b.graces = b.deletions[1:], append(b.deleted, target), append(b.graces, grace)
		return answer
	})
	b.queue = controllers.NewQueue(b.clock)(controllerName, workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(b.queue.ShutDown)
	return b
}

// Consent is what the EvictionBudgets of the bench say.
func (b *bench) Consent(_ context.Context, _ *v1alpha1.EvictionRequest, _ *corev1.Pod, _ string, since time.Time, remove func()) (disruption.Consent, error) {
	b.asked, b.since = b.asked+1, since
	b.clock.Step(b.thinking)
	if len(b.consents) == 0 {
		return disruption.Consent{}, errors.New("the API server is away")
	}
	c := b.consents[0]
	b.consents = b.consents[1:]
	if c.Deletes {
		b.meanwhile()
		remove()
	}
	return c, nil
}

// apply stores the evictor's item as the API server would, if the version is right.
func (b *bench) apply(ctx context.Context, _ client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	b.applied++
	if err := b.applyError; err != nil {
		b.applyError = nil
		return err
	}
	options := &client.SubResourceApplyOptions{}
	options.ApplyOpts(opts)
	if sub != "status" || options.FieldManager != v1alpha1.ImperativeEvictionInterceptor || options.Force == nil || !*options.Force {
		b.t.Errorf("applied %s as %q, force %v", sub, options.FieldManager, options.Force)
	}
	config := obj.(*apply.EvictionRequestApplyConfiguration)
	er := b.request()
	if *config.ResourceVersion != er.ResourceVersion {
		return apierrors.NewConflict(v1alpha1.Resource("evictionrequests"), er.Name, errors.New("stale"))
	}
	items := config.Status.Interceptors
	if len(items) != 1 || *items[0].Name != v1alpha1.ImperativeEvictionInterceptor || len(config.Status.Conditions) > 0 {
		b.t.Errorf("applied more than its own item: %v", config.Status)
	}
	item := v1alpha1.InterceptorStatus{
		Name: *items[0].Name, StartTime: items[0].StartTime, HeartbeatTime: items[0].HeartbeatTime, Message: *items[0].Message,
		ExpectedFinishTime: items[0].ExpectedFinishTime,
	}
	if items[0].Retries != nil {
		item.Retries = *items[0].Retries
	}
	if r := items[0].Refusal; r != nil {
		item.Refusal = &v1alpha1.EvictionRefusal{Reason: *r.Reason, Budgets: r.Budgets, Message: *r.Message}
	}
	for i := range er.Status.Interceptors {
		if er.Status.Interceptors[i].Name == item.Name {
			er.Status.Interceptors[i] = item
		}
	}
	return b.server.Status().Update(ctx, er)
}

func (b *bench) request() *v1alpha1.EvictionRequest {
	b.t.Helper()
	er := &v1alpha1.EvictionRequest{}
	if err := b.server.Get(b.t.Context(), key, er); err != nil {
		b.t.Fatalf("get request: %v", err)
	}
	return er
}

// reconcile returns after how long it wants to come back.
func (b *bench) reconcile() time.Duration {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		b.t.Fatalf("reconcile: %v", err)
	}
	return result.RequeueAfter
}

// attempts renders the metric.
func (b *bench) attempts() map[string]float64 {
	b.t.Helper()
	return builder.Series(b.t, b.registry, "drawbridge_imperative_eviction_attempts_total")
}

// ourRequest begins with a request whose turn is the evictor's.
func ourRequest() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web-1", "uid-1").UID("er-1").Created(at(-60)).
		Requesters("alice.users.drawbridge.dev").Interceptors("a.example.com").Processed("a.example.com").
		Active(v1alpha1.ImperativeEvictionInterceptor, at(0))
}

func ourPod() *builder.PodWrapper {
	return builder.Pod("shop", "web-1").UID("uid-1").Label("app", "web").Phase(corev1.PodRunning)
}

var key = types.NamespacedName{Namespace: "shop", Name: "uid-1"}
