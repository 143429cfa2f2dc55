package interceptor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// fakeCluster is an API server that may be ahead of the cache.
type fakeCluster struct {
	client.Client
	cached, stored *v1alpha1.EvictionRequest
	applied        []*apply.InterceptorStatusApplyConfiguration
	refuse         func(*apply.InterceptorStatusApplyConfiguration) error
	events         []string
}

// cachedReader reads one version of the request.
type cachedReader struct {
	client.Reader
	er **v1alpha1.EvictionRequest
}

func (r cachedReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	er, ok := obj.(*v1alpha1.EvictionRequest)
	if !ok || *r.er == nil {
		return apierrors.NewNotFound(v1alpha1.Resource("evictionrequests"), key.Name)
	}
	(*r.er).DeepCopyInto(er)
	return nil
}

func (c *fakeCluster) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return cachedReader{er: &c.cached}.Get(ctx, key, obj, opts...)
}

func (c *fakeCluster) SubResource(string) client.SubResourceClient { return statusWriter{c: c} }

type statusWriter struct {
	client.SubResourceClient
	c *fakeCluster
}

func (s statusWriter) Apply(_ context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	options := &client.SubResourceApplyOptions{}
	options.ApplyOpts(opts)
	config, ok := obj.(*apply.EvictionRequestApplyConfiguration)
	if !ok || len(config.Status.Interceptors) != 1 || options.FieldManager != ourName || options.Force == nil || !*options.Force {
		return errors.New("not a report of its own item")
	}
	if s.c.stored == nil || *config.ResourceVersion != s.c.stored.ResourceVersion || *config.UID != s.c.stored.UID {
		return apierrors.NewConflict(v1alpha1.Resource("evictionrequests"), *config.Name, errors.New("stale"))
	}
	if s.c.refuse != nil {
		if err := s.c.refuse(&config.Status.Interceptors[0]); err != nil {
			return err
		}
	}
	s.c.applied = append(s.c.applied, &config.Status.Interceptors[0])
	return nil
}

func (c *fakeCluster) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	c.events = append(c.events, reason)
}

// evacuateFunc is an interceptor that cannot cancel.
type evacuateFunc func(ctx context.Context, t Target) (Progress, error)

func (f evacuateFunc) Evacuate(ctx context.Context, t Target) (Progress, error) { return f(ctx, t) }

func newBench(t *testing.T, c *fakeCluster, impl Interceptor) *reconciler {
	t.Helper()
	o := Options{Name: ourName, Clock: testingclock.NewFakeClock(at(100)), Recorder: c}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	return newReconciler(drawbridge(ourName), c, cachedReader{er: &c.stored}, impl, forDrawbridge(o))
}

func mustLook(t *testing.T, r *reconciler) (reconcile.Result, error) {
	t.Helper()
	return r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "uid-1"}})
}

func TestSDKBehindACache(t *testing.T) {
	t.Parallel()
	works := evacuateFunc(func(context.Context, Target) (Progress, error) {
		return Progress{Message: "copying", ExpectedFinishTime: at(100.5)}, nil
	})
	ready := evacuateFunc(func(context.Context, Target) (Progress, error) { return Progress{Done: true}, nil })
	cases := map[string]struct {
		impl   Interceptor
		stored *builder.EvictionRequestWrapper
		// reports is how many are written; start is the first one's startTime.
		reports int
		start   time.Time
		after   time.Duration
	}{
		"another version: it reports on that":                 {impl: works, stored: newRequest().ResourceVersion("2"), reports: 1, start: at(100), after: 3 * time.Minute},
		"its own report is there already":                     {impl: works, stored: newRequest().ResourceVersion("2").Started(ourName, at(90)), after: 50 * time.Second},
		"its own report is there, and it is done":             {impl: ready, stored: newRequest().ResourceVersion("2").Started(ourName, at(90)), reports: 1, start: at(90)},
		"its turn is over":                                    {impl: works, stored: newRequest().ResourceVersion("2").Canceled(v1alpha1.ReasonNoRequesters, at(99)), after: 5 * time.Second},
		"it was made anew":                                    {impl: works, stored: newRequest().UID("er-2"), after: 5 * time.Second},
		"it is gone":                                          {impl: works, after: 5 * time.Second},
		"the cache is right, and it is done without a report": {impl: ready, stored: newRequest(), reports: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &fakeCluster{cached: newRequest().Obj()}
			if tc.stored != nil {
				c.stored = tc.stored.Obj()
			}
			result, err := mustLook(t, newBench(t, c, tc.impl))
			if err != nil {
				t.Fatal(err)
			}
			if result.RequeueAfter != tc.after || len(c.applied) != tc.reports {
				t.Errorf("it comes back after %s, want %s; %d reports, want %d", result.RequeueAfter, tc.after, len(c.applied), tc.reports)
			}
			if tc.start.IsZero() || len(c.applied) == 0 {
				return
			}
			if start := c.applied[0].StartTime; start == nil || !start.Time.Equal(tc.start) {
				t.Errorf("start %v, want %s", start, tc.start)
			}
		})
	}
	t.Run("what it reported is not reported again", func(t *testing.T) {
		t.Parallel()
		var started []time.Time
		c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
		r := newBench(t, c, evacuateFunc(func(_ context.Context, target Target) (Progress, error) {
			started = append(started, target.StartedAt)
			return Progress{Message: "copying"}, nil
		}))
		for range 2 {
			if _, err := mustLook(t, r); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]time.Time{{}, at(100)}, started); diff != "" || len(c.applied) != 1 {
			t.Errorf("%d reports; start it is told (-want +got):\n%s", len(c.applied), diff)
		}
	})
	t.Run("what it completed is not begun again", func(t *testing.T) {
		t.Parallel()
		calls := 0
		c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
		r := newBench(t, c, evacuateFunc(func(context.Context, Target) (Progress, error) {
			calls++
			return Progress{Done: true}, nil
		}))
		for range 3 {
			if _, err := mustLook(t, r); err != nil {
				t.Fatal(err)
			}
		}
		if calls != 1 || len(c.applied) != 1 {
			t.Errorf("%d calls, %d reports; want one each", calls, len(c.applied))
		}
		c.cached, c.stored = nil, nil
		if _, err := mustLook(t, r); err != nil {
			t.Fatal(err)
		}
		if len(r.states.of) != 0 || len(r.running.of) != 0 {
			t.Errorf("it remembers %v and %v of a request that is gone", r.states.of, r.running.of)
		}
	})
}

func TestSDKWhenAReportIsRefused(t *testing.T) {
	t.Parallel()
	works := evacuateFunc(func(context.Context, Target) (Progress, error) {
		return Progress{Message: "copying", ExpectedFinishTime: at(101)}, nil
	})
	invalid := apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("EvictionRequest").GroupKind(), "uid-1", nil)
	t.Run("for its estimate, it goes without", func(t *testing.T) {
		t.Parallel()
		c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
		c.refuse = func(report *apply.InterceptorStatusApplyConfiguration) error {
			if report.ExpectedFinishTime != nil {
				return invalid
			}
			return nil
		}
		if _, err := mustLook(t, newBench(t, c, works)); err != nil || len(c.applied) != 1 {
			t.Errorf("error %v, %d reports; want one report", err, len(c.applied))
		}
		if diff := cmp.Diff([]string{"EvacuationStarted"}, c.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	for name, answer := range map[string]error{
		"for another reason, it says so": invalid,
		"for who it is, it says so":      apierrors.NewForbidden(v1alpha1.Resource("evictionrequests"), "uid-1", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
			c.refuse = func(*apply.InterceptorStatusApplyConfiguration) error { return answer }
			if _, err := mustLook(t, newBench(t, c, works)); !errors.Is(err, answer) {
				t.Errorf("error %v, want %v", err, answer)
			}
			if diff := cmp.Diff([]string{"ReportRefused"}, c.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// The end of a turn stops a call of Evacuate that is under way; other news do not.
func TestSDKStopsACallWhenTheTurnIsOver(t *testing.T) {
	t.Parallel()
	passedOver := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "web-1", "uid-1").UID("er-1").Requesters("drain.example.com").
			Interceptors(ourName, otherName).Processed(ourName).Active(otherName, at(1))
	}
	update := func(to *builder.EvictionRequestWrapper) func(*reconciler, controllers.Queue) {
		return func(r *reconciler, q controllers.Queue) {
			r.requestEvents().Update(context.Background(), event.UpdateEvent{ObjectOld: newRequest().Obj(), ObjectNew: to.Obj()}, q)
		}
	}
	cases := map[string]struct {
		event          func(*reconciler, controllers.Queue)
		stopped, asked bool
	}{
		"canceled":    {update(newRequest().Canceled(v1alpha1.ReasonNoRequesters, at(1))), true, true},
		"evicted":     {update(newRequest().Evicted(v1alpha1.ReasonPodDeleted, at(1))), true, true},
		"passed over": {update(passedOver()), true, true},
		"made anew":   {update(newRequest().UID("er-2")), true, true},
		"deleted": {func(r *reconciler, q controllers.Queue) {
			r.requestEvents().Delete(context.Background(), event.DeleteEvent{Object: newRequest().Obj()}, q)
		}, true, true},
		"an older one of the name deleted": {func(r *reconciler, q controllers.Queue) {
			r.requestEvents().Delete(context.Background(), event.DeleteEvent{Object: newRequest().UID("er-0").Obj()}, q)
		}, false, true},
		"another requester":  {update(newRequest().Requesters("more.example.com")), false, true},
		"its own heartbeat":  {update(newRequest().Started(ourName, at(0))), false, false},
		"nothing that shows": {update(newRequest().ResourceVersion("2")), false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
			q := workqueue.NewTypedRateLimitingQueue(controllers.SlowBackoff())
			t.Cleanup(q.ShutDown)
			var r *reconciler
			r = newBench(t, c, evacuateFunc(func(ctx context.Context, _ Target) (Progress, error) {
				tc.event(r, q)
				return Progress{Done: true}, ctx.Err()
			}))
			if _, err := mustLook(t, r); err != nil {
				t.Fatal(err)
			}
			if stopped := len(c.applied) == 0; stopped != tc.stopped || (q.Len() == 1) != tc.asked {
				t.Errorf("stopped %t, want %t; %d in the queue, want one: %t", stopped, tc.stopped, q.Len(), tc.asked)
			}
			if tc.stopped && len(c.events) != 0 {
				t.Errorf("events %v about a call that was stopped", c.events)
			}
		})
	}
}

func TestSDKShutdownIsNoFailure(t *testing.T) {
	t.Parallel()
	c := &fakeCluster{cached: newRequest().Obj(), stored: newRequest().Obj()}
	ctx, stop := context.WithCancel(t.Context())
	r := newBench(t, c, evacuateFunc(func(ctx context.Context, _ Target) (Progress, error) {
		stop()
		return Progress{}, ctx.Err()
	}))
	result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "uid-1"}})
	if err != nil || result.RequeueAfter != 0 || len(c.events) != 0 || len(c.applied) != 0 {
		t.Errorf("result %v, error %v, events %v, %d reports; want nothing", result, err, c.events, len(c.applied))
	}
}

func TestSDKWatchesMapToRequests(t *testing.T) {
	t.Parallel()
	pod := builder.Pod("shop", "web-1").UID("uid-1").Obj()
	w := Watch{Object: pod, Requests: func(_ context.Context, obj client.Object) []types.NamespacedName {
		return []types.NamespacedName{RequestOf(obj)}
	}}
	want := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "uid-1"}}}
	if diff := cmp.Diff(want, w.enqueue(t.Context(), pod)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A registration may ask for reports more often than the interceptor's own interval.
func TestHeartbeatsComeWithinTheDeadline(t *testing.T) {
	cases := map[string]struct{ deadline, want time.Duration }{
		"the deadline of the installation": {0, 3 * time.Minute},
		"the shortest one":                 {2 * time.Minute, time.Minute},
		"a short one":                      {6 * time.Minute, 2 * time.Minute},
		"a long one":                       {24 * time.Hour, 3 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &reconciler{Options: Options{Name: ourName, HeartbeatInterval: 3 * time.Minute}}
			er := builder.EvictionRequest("shop", "web-1", "uid-1").Interceptors(ourName).Active(ourName, time.Now())
			if tc.deadline > 0 {
				er.HeartbeatDeadline(ourName, tc.deadline)
			}
			if got := r.input(drawbridge(ourName).decode(er.Obj()), turnState{}).Interval; got != tc.want {
				t.Errorf("a heartbeat every %s, want every %s", got, tc.want)
			}
		})
	}
}
