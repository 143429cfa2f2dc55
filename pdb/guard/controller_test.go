package guard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

const imperative = v1alpha1.ImperativeEvictionInterceptor

func (b *bench) want(what string, want, got any) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The way of one eviction, from the first call to the next but one.
func TestAGuardClosesAndOpens(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), webPod("web-2").Obj(), builder.Pod("shop", "plain").UID("uid-plain").Ready().Obj())
	for _, name := range []string{"web-1", "web-2", "plain"} {
		b.observe(name)
	}
	b.want("writes before the first eviction", []string(nil), b.work())

	b.store(request("web-1", interA).Active(interA, t0).Obj())
	b.want("writes, first of all the budget", []string{"create PodDisruptionBudget shop/drawbridge-guard"}, b.work())
	b.want("pods while the budget is not counted", map[string]int{"unguarded": 1}, b.counted())
	want := NewBudget("shop", &metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "drawbridge-guard", UID: "role-1"})
	want.UID, want.Generation, want.ResourceVersion = "uid-of-drawbridge-guard", 1, "1"
	b.want("the budget", want, b.guardBudget())

	b.count()
	b.want("writes when the budget is counted", []string{"patch Pod shop/web-1"}, b.work())
	b.want("guarded", []string{"web-1"}, b.guarded())
	b.observe("web-1")
	b.want("writes when nothing has changed", []string(nil), b.work())
	b.want("pods", map[string]int{"closed": 1}, b.counted())

	b.store(request("web-2", interA).Active(interA, t0).Obj())
	b.want("writes for the next pod", []string{"patch Pod shop/web-2"}, b.work())

	b.store(request("web-1", interA).Processed(interA).Active(imperative, t0).Obj())
	b.want("writes in the imperative stage", []string{"patch Pod shop/web-1"}, b.work())
	b.want("guarded", []string{"web-2"}, b.guarded())
	b.store(request("web-2", interA).Processed(interA).Canceled(v1alpha1.ReasonNoRequesters, t0).Obj())
	b.want("writes when it is canceled", []string{"patch Pod shop/web-2"}, b.work())
	b.want("guarded", []string(nil), b.guarded())
}

// A native Eviction alone closes the guard for the turns of responders, and opens it for the last
// one.
func TestAGuardClosesDuringANativeEviction(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), builder.Pod("shop", "plain").UID("uid-plain").Ready().Obj())
	turns := nativeTurns{"uid-web-1": "acme.example.com/migrate", "uid-plain": ""}
	b.Native = turns
	look := func() []string {
		b.observe("web-1")
		b.observe("plain")
		return b.work()
	}
	b.want("writes in a responder's turn", []string{"create PodDisruptionBudget shop/drawbridge-guard"}, look())
	b.count()
	b.want("writes when the budget is counted", []string{"patch Pod shop/web-1"}, b.work())
	turns["uid-web-1"] = ""
	b.want("writes in the last one's turn", []string{"patch Pod shop/web-1"}, look())
	b.want("guarded", []string(nil), b.guarded())
	turns["uid-web-1"] = "acme.example.com/migrate"
	b.store(request("web-1", interA).Processed(interA).Active(imperative, t0).Obj())
	b.want("writes in a responder's turn, whatever our request says", []string{"patch Pod shop/web-1"}, look())
}

func TestBudgetsOfOthersWin(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), request("web-1", interA).Active(interA, t0).Obj())
	b.observe("web-1")
	b.work()
	b.count()
	b.work()
	b.want("guarded", []string{"web-1"}, b.guarded())

	theirs := builder.Budget("shop", "web").UID("pdb-2").Selects("app", "web").MinAvailable("1").Obj()
	if err := b.api.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	b.budgetChanged(t.Context(), nil, theirs, false, b.queue)
	b.want("writes when a budget comes", []string{"patch Pod shop/web-1"}, b.work())
	b.observe("web-1")
	b.want("pods", map[string]int{"other_budget": 1}, b.counted())
	b.want("guarded", []string(nil), b.guarded())

	status := theirs.DeepCopy()
	status.Status.CurrentHealthy = 1
	b.budgetChanged(t.Context(), theirs, status, false, b.queue)
	if n := b.queue.Len(); n != 0 {
		t.Errorf("a status of a budget enqueues %d keys, want none", n)
	}

	if err := b.api.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	b.budgetChanged(t.Context(), theirs, nil, false, b.queue)
	b.want("writes when it goes", []string{"patch Pod shop/web-1"}, b.work())
	b.want("guarded", []string{"web-1"}, b.guarded())
}

func TestWhatTheGuardListensTo(t *testing.T) {
	verdict := func(outcome preflight.Outcome) preflight.Interceptor {
		return stubPreflight{outcome: outcome}
	}
	running := request("web-1", interA, interB).Active(interA, t0)
	always := registrations{interA: {Guard: v1alpha1.GuardAlways}}
	tests := map[string]struct {
		pod    *builder.PodWrapper
		er     *builder.EvictionRequestWrapper
		change func(*Controller)
		want   State
	}{
		"a name without a registration guards while it evacuates": {webPod("web-1"), running, nil, StateClosed},
		"and not before": {webPod("web-1"), nil, nil, StateOpen},
		"a registration that wants no guard": {webPod("web-1"), request("web-1", interA).Active(interA, t0),
			func(c *Controller) { c.Registrations = registrations{interA: {Guard: v1alpha1.GuardNever}} }, StateNone},
		"a registration that always wants one":         {webPod("web-1"), nil, func(c *Controller) { c.Registrations = always }, StateClosed},
		"the plan counts even if the pod names nobody": {webPod("web-1").Interceptors(), running, nil, StateClosed},
		"another pod's request does not count":         {webPod("web-1").UID("uid-other"), running, nil, StateOpen},
		"an active interceptor that evicts":            {webPod("web-1"), running, func(c *Controller) { c.Registrations = registrations{interA: {Evicts: true}} }, StateOpen},
		"one that evicts, whose turn comes later":      {webPod("web-1"), running, func(c *Controller) { c.Registrations = registrations{interB: {Evicts: true}} }, StateClosed},
		"one that evicts, whose turn comes in a moment": {webPod("web-1"), builder.EvictionRequest("shop", "web-1", "uid-web-1").Requesters("r"),
			func(c *Controller) { c.Registrations = registrations{interA: {Evicts: true}} }, StateOpen},
		"one whose turn comes in a moment, before one that evicts": {webPod("web-1").Interceptors(interB), request("web-1", interA, interB),
			func(c *Controller) { c.Registrations = registrations{interB: {Evicts: true}} }, StateClosed},
		"a request that was refused for good": {webPod("web-1"), request("web-1").Canceled(v1alpha1.ReasonValidationFailed, t0), func(c *Controller) { c.Registrations = always }, StateOpen},
		"a request whose pod was evicted":     {webPod("web-1"), request("web-1", interA).Evicted(v1alpha1.ReasonPodDeleted, t0), func(c *Controller) { c.Registrations = always }, StateOpen},
		"held in the imperative stage":        {webPod("web-1"), request("web-1", interA).Processed(interA).Active(imperative, t0), func(c *Controller) { c.Holds = holds{"web-1": "so"} }, StateHeld},
		"all interceptors say that there is nothing": {webPod("web-1"), nil, func(c *Controller) {
			c.Registrations = always
			c.Preflights = asks(map[string]preflight.Interceptor{interA: verdict(preflight.Allow)})
		}, StateOpen},
		"one of them has something to do": {webPod("web-1").Interceptors(interA, interB), nil, func(c *Controller) {
			c.Registrations = always
			c.Preflights = asks(map[string]preflight.Interceptor{interA: verdict(preflight.Allow)})
		}, StateClosed},
		"it refuses": {webPod("web-1"), nil, func(c *Controller) {
			c.Registrations = always
			c.Preflights = asks(map[string]preflight.Interceptor{interA: verdict(preflight.Deny)})
		}, StateClosed},
		"it cannot say": {webPod("web-1"), nil, func(c *Controller) {
			c.Registrations = always
			c.Preflights = asks(map[string]preflight.Interceptor{interA: stubPreflight{err: errors.New("no")}})
		}, StateClosed},
		"a pod of a DaemonSet":         {webPod("web-1").DaemonSet("d"), running, nil, StateNone},
		"a mirror pod":                 {webPod("web-1").Mirror(), running, nil, StateNone},
		"a member of a group":          {webPod("web-1").Change(func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }), running, nil, StateNone},
		"a pod that has ended":         {webPod("web-1").Phase(corev1.PodSucceeded), running, nil, StateNone},
		"a namespace that is left out": {webPod("web-1"), running, func(c *Controller) { c.ExcludedNamespaces = []string{"shop"} }, StateNone},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{}
			if tc.er != nil {
				objects = append(objects, tc.er.Obj())
			}
			b := newBench(t, objects...)
			if tc.change != nil {
				tc.change(b.Controller)
			}
			_, d, err := b.decide(t.Context(), tc.pod.Obj())
			if err != nil {
				t.Fatal(err)
			}
			b.want("state", tc.want.String(), d.State.String())
		})
	}
}

// asks answers by name from a map.
func asks(preflights map[string]preflight.Interceptor) func(string) preflight.Interceptor {
	return func(name string) preflight.Interceptor { return preflights[name] }
}

type stubPreflight struct {
	outcome preflight.Outcome
	err     error
}

func (p stubPreflight) Preflight(context.Context, *corev1.Pod) (preflight.Verdict, error) {
	return preflight.Verdict{Outcome: p.outcome}, p.err
}

// unsure is a resolver that may miss somebody.
type unsure struct{ registration.Resolver }

func (unsure) Resolve(*corev1.Pod) ([]string, error) { return nil, registration.ErrNamespaceUnknown }

func TestNothingIsOpenedWhileSomebodyMayBeMissing(t *testing.T) {
	b := newBench(t, webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj())
	b.Resolver = unsure{}
	b.observe("web-1")
	b.want("writes", []string(nil), b.work())

	b.Synced = func() bool { return false }
	b.Resolver = registration.FromAnnotation()
	result, err := b.Reconcile(t.Context(), namespaceKey("shop"))
	if err != nil || result.RequeueAfter != pause {
		t.Errorf("before the caches are in sync: got %v and error %v, want it to come back", result, err)
	}
}

func TestTheVeryPodIsLabeled(t *testing.T) {
	always := registrations{interA: {Guard: v1alpha1.GuardAlways}}
	tests := map[string]*builder.PodWrapper{
		"with other labels":            webPod("web-1"),
		"without labels":               webPod("web-1").Change(func(p *corev1.Pod) { p.Labels = nil }),
		"with a label of its author's": webPod("web-1").Label(v1alpha1.GuardLabel, "mine"),
	}
	for name, pod := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pod.Obj(), ours())
			b.Registrations = always
			b.observe("web-1")
			b.want("writes", []string{"patch Pod shop/web-1"}, b.work())
			want := map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed}
			if pod.Labels["app"] != "" {
				want["app"] = "web"
			}
			b.want("labels", want, b.pod("web-1").Labels)

			for _, change := range []Change{ChangeClose, ChangeOpen} {
				replaced := pod.Clone().UID("uid-other").Obj()
				if change == ChangeOpen {
					replaced = b.pod("web-1")
					replaced.UID = "uid-other"
				}
				patch, err := labelPatch(replaced, change)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.api.Patch(t.Context(), pod.Clone().Obj(), client.RawPatch("application/json-patch+json", patch)); err == nil {
					t.Errorf("change %s fits a pod with another UID", change)
				}
			}
		})
	}
}

func TestAPodThatIsNotAsTheCacheShowsIsLookedAtAgain(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), ours())
	b.Registrations = registrations{interA: {Guard: v1alpha1.GuardAlways}}
	refusals := 1
	b.fail = func(string) error {
		if refusals--; refusals >= 0 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1", nil)
		}
		return nil
	}
	b.observe("web-1")
	b.want("writes", []string{"patch Pod shop/web-1"}, b.work())

	b = newBench(t, webPod("web-1").Obj(), ours())
	b.Registrations = registrations{interA: {Guard: v1alpha1.GuardAlways}}
	b.fail = func(string) error { return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1", nil) }
	if _, err := b.reconcilePod(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-1"}); err == nil {
		t.Error("a pod that keeps changing is no error")
	}
	b.fail = func(string) error { return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-1") }
	if _, err := b.reconcilePod(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-1"}); err != nil {
		t.Errorf("a pod that has gone is an error: %v", err)
	}
}

// A busy machine may show our own write seconds later. A write again would be refused.
func TestALabelThatTheCacheDoesNotShowYetIsNotWrittenAgain(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), ours())
	b.Registrations = registrations{interA: {Guard: v1alpha1.GuardAlways}}
	unlabeled := b.pod("web-1")
	b.observe("web-1")
	b.want("writes", []string{"patch Pod shop/web-1"}, b.work())

	unlabeled.ResourceVersion = ""
	if err := b.api.Update(t.Context(), unlabeled); err != nil {
		t.Fatal(err)
	}
	b.observe("web-1")
	for range 4 {
		b.want("writes while the cache may be behind", []string(nil), b.work())
		b.clock.Step(time.Second)
	}
	b.want("writes while the cache may be behind", []string(nil), b.work())
	b.clock.Step(time.Second)
	b.want("writes when the label must have been taken off", []string{"patch Pod shop/web-1"}, b.work())
}

func TestAHeldGuardIsToldOfOnce(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), ours(), request("web-1", interA).Processed(interA).Active(imperative, t0).Obj())
	b.Holds = holds{"web-1": "virtual machine shop/web cannot migrate"}
	b.observe("web-1")
	b.work()
	b.observe("web-1")
	b.queue.Add(controllers.PodOfRequest(t.Context(), request("web-1").Obj())[0])
	b.work()
	b.want("guarded", []string{"web-1"}, b.guarded())
	b.want("pods", map[string]int{"held": 1}, b.counted())
	b.want("events", 2, len(b.recorder.events))
}

func TestRequestEvents(t *testing.T) {
	first := request("web-1", interA).Active(interA, t0)
	tests := map[string]struct {
		before, after *builder.EvictionRequestWrapper
		want          bool
	}{
		"a heartbeat":                {first, first.Clone().Started(interA, t0), false},
		"its plan was made":          {builder.EvictionRequest("shop", "web-1", "uid-web-1").Requesters("r"), request("web-1", interA), true},
		"the imperative stage":       {first, first.Clone().Processed(interA).Active(imperative, t0), true},
		"it is canceled":             {first, first.Clone().Canceled(v1alpha1.ReasonNoRequesters, t0), true},
		"another interceptor's turn": {request("web-1", interA, interB).Active(interA, t0), request("web-1", interA, interB).Active(interB, t0), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := requestEvents().Update(event.UpdateEvent{ObjectOld: tc.before.Obj(), ObjectNew: tc.after.Obj()})
			if got != tc.want {
				t.Errorf("passes: got %t, want %t", got, tc.want)
			}
		})
	}
}

// What is held, or not known, may change without an event: the guard looks again.
func TestTheGuardLooksAgainAtWhatMayChangeWithoutAnEvent(t *testing.T) {
	always := registrations{interA: {Guard: v1alpha1.GuardAlways}}
	verdict := stubPreflight{err: errors.New("not read yet")}
	held := holds{"web-1": "what is behind the pod is not known yet"}
	tests := map[string]struct {
		er     *builder.EvictionRequestWrapper
		change func(*Controller)
		settle func()
	}{
		"who could not say": {nil, func(c *Controller) {
			c.Registrations, c.Preflights = always, func(string) preflight.Interceptor { return verdict }
		}, func() { verdict = stubPreflight{outcome: preflight.Allow} }},
		"who held it": {request("web-1", interA).Processed(interA).Active(imperative, t0), func(c *Controller) { c.Holds = held }, func() { delete(held, "web-1") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj(), ours()}
			if tc.er != nil {
				objects = append(objects, tc.er.Obj())
			}
			b := newBench(t, objects...)
			tc.change(b.Controller)
			b.observe("web-1")
			b.want("writes while it is so", []string(nil), b.work())
			tc.settle()
			b.clock.Step(lookAgain)
			waiting.Eventually(t, "somebody to look again", func(context.Context) error {
				if b.queue.Len() == 0 {
					return errors.New("the queue is empty")
				}
				return nil
			})
			b.want("writes when it is looked at again", []string{"patch Pod shop/web-1"}, b.work())
		})
	}
}

func TestSetupNamesWhatIsMissing(t *testing.T) {
	err := (&Controller{}).SetupWithManager(nil)
	if err == nil {
		t.Fatal("got no error")
	}
	want := "controller guard: " + strings.Join([]string{"APIReader is not set", "Client is not set", "Clock is not set", "Holds is not set", "Metrics is not set", "Native is not set", "OnChange is not set", "Preflights is not set", "Recorder is not set", "Registrations is not set", "Resolver is not set", "Synced is not set"}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
