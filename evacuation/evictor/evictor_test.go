package evictor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestEvictorActsOnlyInItsTurn(t *testing.T) {
	t.Parallel()
	cases := map[string]*builder.EvictionRequestWrapper{
		"another one is active": builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("r.example.com").
			Interceptors("a.example.com").Active("a.example.com", at(0)),
		"nobody is active": builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("r.example.com").Interceptors("a.example.com"),
		"another one is not processed": builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("r.example.com").
			Interceptors("a.example.com", "b.example.com").Processed("a.example.com").Active(v1alpha1.ImperativeEvictionInterceptor, at(0)),
		"nobody wants it any more": builder.EvictionRequest("shop", "web-1", "uid-1").
			Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, at(0)),
		"only the trial of a hook wants it": builder.EvictionRequest("shop", "web-1", "uid-1").Requesters(v1alpha1.HookTestRequester).
			Interceptors().Active(v1alpha1.ImperativeEvictionInterceptor, at(0)),
		"it is canceled": ourRequest().Canceled(v1alpha1.ReasonNoRequesters, at(0)),
		"it is evicted":  ourRequest().Evicted(v1alpha1.ReasonPodTerminal, at(0)),
	}
	deleting := ourRequest()
	deleting.Finalizers = []string{"example.com/hold"}
	deleting.DeletionTimestamp = &metav1.Time{Time: at(0)}
	cases["it is being deleted"] = deleting
	for name, er := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, er.Obj(), ourPod().Obj())
			if after := b.reconcile(); after != 0 {
				t.Errorf("it comes back after %s", after)
			}
			// The cache may be behind: the same with a cache in which it is our turn.
			cache := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(ourRequest().Obj(), ourPod().Obj()).Build()
			b.Client = cache
			if after := b.reconcile(); after != 0 {
				t.Errorf("with a stale cache it comes back after %s", after)
			}
			if len(b.calls) != 0 || len(b.log.Events) != 0 || b.applied != 0 {
				t.Errorf("calls %v, events %v, %d reports", b.calls, b.log.Events, b.applied)
			}
		})
	}
	t.Run("it is deleted", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, ourPod().Obj())
		b.Client = fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(ourRequest().Obj(), ourPod().Obj()).Build()
		b.reconcile()
		if len(b.calls) != 0 {
			t.Errorf("calls %v", b.calls)
		}
	})
}

func TestEvictorAnswers(t *testing.T) {
	t.Parallel()
	blockedNote := "PodDisruptionBudget web allows no disruption now. The disruption budget web needs 3 healthy pods and has 3 currently."
	refused := func(kind, reason, why string) string {
		return kind + " " + reason + ": The eviction of pod web-1 failed (attempt 1, the first try of this manager). " + why
	}
	cases := map[string]struct {
		answer   error
		livePod  *corev1.Pod
		attempts map[string]float64
		events   []string
		failed   []string
		item     v1alpha1.InterceptorStatus
		after    time.Duration
	}{
		"success writes no status": {
			attempts: map[string]float64{"evicted first": 1},
			events:   []string{"EvictionRequest EvictionAccepted: The eviction of pod web-1 was accepted (the first try of this manager)."},
			after:    30 * time.Second,
		},
		"404 is no failure": {
			answer:   apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-1"),
			attempts: map[string]float64{"gone first": 1}, after: 30 * time.Second,
		},
		"409 for another UID is no failure": {
			answer: apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-1", errors.New("UID")), livePod: ourPod().UID("uid-2").Obj(),
			attempts: map[string]float64{"replaced first": 1}, after: 30 * time.Second,
		},
		"409 for the same pod is one": {
			answer:   apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-1", errors.New("x")),
			attempts: map[string]float64{"conflict first": 1},
			failed:   []string{"shop/uid-1 web-1"},
			events: []string{
				refused("EvictionRequest", "EvictionConflict", `The pod changed during the eviction. Operation cannot be fulfilled on pods "web-1": x.`),
				refused("Pod", "EvictionConflict", `The pod changed during the eviction. Operation cannot be fulfilled on pods "web-1": x.`),
			},
			item: v1alpha1.InterceptorStatus{
				Retries: 1, StartTime: &metav1.Time{Time: at(0)}, HeartbeatTime: &metav1.Time{Time: at(0)},
				Message: retriesText("1"),
				Refusal: &v1alpha1.EvictionRefusal{Reason: "EvictionConflict", Message: `The pod changed during the eviction. Operation cannot be fulfilled on pods "web-1": x.`},
			},
			after: 5 * time.Second,
		},
		"a budget that blocks is named": {
			answer:   builder.BlockedAnswer(),
			attempts: map[string]float64{"budget first": 1},
			failed:   []string{"shop/uid-1 web-1"},
			events:   []string{refused("EvictionRequest", "EvictionBlocked", blockedNote), refused("Pod", "EvictionBlocked", blockedNote)},
			item: v1alpha1.InterceptorStatus{
				Retries: 1, StartTime: &metav1.Time{Time: at(0)}, HeartbeatTime: &metav1.Time{Time: at(0)},
				Message: retriesText("1"),
				Refusal: &v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: "The disruption budget web needs 3 healthy pods and has 3 currently."},
			},
			after: 5 * time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, ourRequest().Obj(), ourPod().Obj())
			b.budgets.Observe(testBudget("web", 0))
			b.answers = []error{tc.answer}
			if tc.livePod != nil {
				b.APIReader = fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(b.request(), tc.livePod).Build()
			}
			after := b.reconcile()
			tc.item.Name = v1alpha1.ImperativeEvictionInterceptor
			for what, diff := range map[string]string{
				"calls":         cmp.Diff([]target{callTarget}, b.calls),
				"attempts":      cmp.Diff(tc.attempts, b.attempts()),
				"events":        cmp.Diff(tc.events, b.log.Events),
				"failures":      cmp.Diff(tc.failed, b.failures.failed),
				"own item":      cmp.Diff(tc.item, b.request().Status.Interceptors[1]),
				"foreign item":  cmp.Diff(v1alpha1.InterceptorStatus{Name: "a.example.com"}, b.request().Status.Interceptors[0]),
				"comes back in": cmp.Diff(tc.after, after),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			// Nothing happened since: no second call, no second report.
			applied := b.applied
			if b.reconcile(); len(b.calls) != 1 || b.applied != applied {
				t.Errorf("at the same time again: %d calls, %d reports more", len(b.calls)-1, b.applied-applied)
			}
		})
	}
}

func TestEvictorPassesOnTheLargestGracePeriod(t *testing.T) {
	t.Parallel()
	seconds := int64(60)
	er := ourRequest().Requester(v1alpha1.Requester{Name: "b.example.com", GracePeriodSeconds: &seconds})
	b := newBench(t, er.Obj(), ourPod().Obj())
	b.answers = []error{nil}
	b.reconcile()
	if diff := cmp.Diff([]*int64{&seconds}, b.graces); diff != "" {
		t.Errorf("grace periods (-want +got):\n%s", diff)
	}
}

// TestEvictorIsWokenByTheBudget follows statement 86 with the answers given: the
// attempt that succeeds is the budget's, long before the backoff is over.
func TestEvictorIsWokenByTheBudget(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	b.budgets.Observe(testBudget("web", 0))
	b.answers = []error{builder.BlockedAnswer(), builder.BlockedAnswer(), nil}
	if after := b.reconcile(); after != 5*time.Second {
		t.Errorf("after the first attempt it comes back in %s, want 5s", after)
	}
	b.clock.Step(5 * time.Second)
	if after := b.reconcile(); after != 10*time.Second {
		t.Errorf("after the second attempt it comes back in %s, want 10s", after)
	}
	if n := b.queue.Len(); n != 0 {
		t.Fatalf("%d keys in the queue, want none", n)
	}
	b.clock.Step(time.Second)
	b.enqueue(b.budgets.Observe(testBudget("web", 1)))
	if n := b.queue.Len(); n != 1 {
		t.Fatalf("%d keys in the queue, want the one that was woken", n)
	}
	b.reconcile()
	want := map[string]float64{"budget first": 1, "budget backoff": 1, "evicted budget": 1}
	if diff := cmp.Diff(want, b.attempts()); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	last := b.log.Events[len(b.log.Events)-1]
	if diff := cmp.Diff("EvictionRequest EvictionAccepted: The eviction of pod web-1 was accepted (because a budget made room).", last); diff != "" {
		t.Errorf("last event (-want +got):\n%s", diff)
	}
	if got := b.request().Status.Interceptors[1].Retries; got != 2 {
		t.Errorf("%d retries are stored, want 2", got)
	}
}

// TestEvictorBudgetMovesDuringTheCall: the attempt is told of, and the event is
// not lost.
func TestEvictorBudgetMovesDuringTheCall(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	b.budgets.Observe(testBudget("web", 0))
	b.call = func(context.Context, target, *int64) error {
		b.enqueue(b.budgets.Observe(testBudget("web", 1)))
		return builder.BlockedAnswer()
	}
	b.reconcile()
	if got := b.request().Status.Interceptors[1].Retries; got != 1 || b.queue.Len() != 1 {
		t.Errorf("%d retries are stored and %d keys wait, want 1 of each", got, b.queue.Len())
	}
}

// TestEvictorAdmissionTakesAPlace: a status of the budget that was on its way
// wakes nobody for the place that is taken.
func TestEvictorAdmissionTakesAPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	waiting := budgetTest{t, b.budgets}
	waiting.Observe(testBudget("web", 0))
	waiting.refused(7)
	b.answers = []error{nil}
	b.reconcile()
	waiting.want("a status from before", b.budgets.Observe(testBudget("web", 1)))
	waiting.want("a status that shows it", b.budgets.Observe(testBudget("web", 1, "web-1")), 7)
}

// TestEvictorCountsOnAfterARestart: what is stored is what counts.
func TestEvictorCountsOnAfterARestart(t *testing.T) {
	t.Parallel()
	er := ourRequest().Report(v1alpha1.ImperativeEvictionInterceptor, func(i *v1alpha1.InterceptorStatus) {
		i.Retries, i.StartTime, i.HeartbeatTime = 5, &metav1.Time{Time: at(-600)}, &metav1.Time{Time: at(-600)}
	})
	b := newBench(t, er.Obj(), ourPod().Obj())
	b.answers = []error{builder.BlockedAnswer()}
	if after := b.reconcile(); after != 160*time.Second {
		t.Errorf("it comes back in %s, want 2m40s", after)
	}
	if got := b.request().Status.Interceptors[1].Retries; got != 6 {
		t.Errorf("%d retries are stored, want 6", got)
	}
}

// TestEvictorReportsAfterAConflict: the count is not lost and costs no attempt.
func TestEvictorReportsAfterAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	b.answers = []error{builder.BlockedAnswer()}
	b.applyError = apierrors.NewConflict(v1alpha1.Resource("evictionrequests"), "uid-1", errors.New("stale"))
	if after := b.reconcile(); after != 5*time.Second {
		t.Errorf("after the conflict it comes back in %s, want 5s", after)
	}
	b.clock.Step(2 * time.Second)
	if after := b.reconcile(); after != 3*time.Second {
		t.Errorf("after the report it comes back in %s, want 3s", after)
	}
	want := v1alpha1.InterceptorStatus{
		Name: v1alpha1.ImperativeEvictionInterceptor, Retries: 1,
		StartTime: &metav1.Time{Time: at(2)}, HeartbeatTime: &metav1.Time{Time: at(2)},
	}
	if diff := cmp.Diff(want, b.request().Status.Interceptors[1], cmpopts.IgnoreFields(v1alpha1.InterceptorStatus{}, "Message", "Refusal")); diff != "" {
		t.Errorf("own item (-want +got):\n%s", diff)
	}
}

func TestEvictorReturnsOtherErrorsOfTheReport(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	b.answers = []error{builder.BlockedAnswer()}
	b.applyError = apierrors.NewInternalError(errors.New("x"))
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); !apierrors.IsInternalError(err) {
		t.Errorf("the error is %v, want the server's", err)
	}
}

func TestEvictorBeingStoppedCountsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	ctx, cancel := context.WithCancel(t.Context())
	b.call = func(context.Context, target, *int64) error {
		cancel()
		return context.Canceled
	}
	if _, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: key}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want %v", err, context.Canceled)
	}
	if len(b.failures.failed) != 0 || len(b.log.Events) != 0 || b.applied != 0 {
		t.Errorf("failures %v, events %v, %d reports", b.failures.failed, b.log.Events, b.applied)
	}
}

func TestEvictorLeavesUnsupportedPodsAlone(t *testing.T) {
	t.Parallel()
	for name, pod := range map[string]*builder.PodWrapper{
		"a DaemonSet's pod": ourPod().DaemonSet("agent"),
		"a mirror pod":      ourPod().Mirror(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, ourRequest().Obj(), pod.Obj())
			for range 3 {
				if after := b.reconcile(); after != 3*time.Minute {
					t.Errorf("it comes back in %s, want 3m", after)
				}
				b.clock.Step(3 * time.Minute)
			}
			want := v1alpha1.InterceptorStatus{
				Name: v1alpha1.ImperativeEvictionInterceptor, StartTime: &metav1.Time{Time: at(0)}, HeartbeatTime: &metav1.Time{Time: at(360)},
				Message: "API-initiated eviction of DaemonSet and mirror pods is not supported",
			}
			if diff := cmp.Diff(want, b.request().Status.Interceptors[1]); diff != "" {
				t.Errorf("own item (-want +got):\n%s", diff)
			}
			events := []string{
				"EvictionRequest EvictionNotSupported: API-initiated eviction of DaemonSet and mirror pods is not supported.",
				"Pod EvictionNotSupported: API-initiated eviction of DaemonSet and mirror pods is not supported.",
			}
			if diff := cmp.Diff(events, b.log.Events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvictorForgets makes sure that nothing stays in memory.
func TestEvictorForgets(t *testing.T) {
	t.Parallel()
	b := newBench(t, ourRequest().Obj(), ourPod().Obj())
	b.budgets.Observe(testBudget("web", 0))
	b.answers = []error{builder.BlockedAnswer()}
	b.reconcile()
	if len(b.last) != 1 || len(b.budgets.places) != 1 {
		t.Fatalf("%d attempts and %d places are remembered, want 1 of each", len(b.last), len(b.budgets.places))
	}
	if len(b.failures.failed) != 1 {
		t.Fatalf("counted failures %v, want 1", b.failures.failed)
	}
	if err := b.server.Delete(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if len(b.last) != 0 || len(b.budgets.places) != 0 {
		t.Errorf("%d attempts and %d places are remembered, want none", len(b.last), len(b.budgets.places))
	}
	if len(b.failures.failed) != 0 {
		t.Errorf("still counted are the failures %v", b.failures.failed)
	}
}
