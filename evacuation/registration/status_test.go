package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// statusWorld is the controller on a fake client that counts and may refuse writes.
type statusWorld struct {
	t        *testing.T
	clock    *clocktesting.FakeClock
	client   client.Client
	registry *Registry
	status   *StatusReconciler
	writes   int
	failure  error
}

func newStatusWorld(t *testing.T, registrations ...*builder.EvictionInterceptorWrapper) *statusWorld {
	t.Helper()
	w := &statusWorld{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)), registry: registryOf(registrations...)}
	objects := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithStatusSubresource(&v1alpha1.EvictionInterceptor{})
	for _, registration := range registrations {
		objects.WithObjects(registration.Obj())
	}
	w.client = interceptor.NewClient(objects.Build(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if w.failure != nil {
				return w.failure
			}
			w.writes++
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	w.status = &StatusReconciler{Client: w.client, Registry: w.registry, Clock: w.clock, written: map[string]time.Time{}}
	w.status.members, _ = counting(w.registry)
	return w
}

func (w *statusWorld) reconcile(name string) (ctrl.Result, error) {
	w.t.Helper()
	return w.status.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
}

func (w *statusWorld) must(name string, wantAfter time.Duration) {
	w.t.Helper()
	result, err := w.reconcile(name)
	if err != nil || result.RequeueAfter != wantAfter {
		w.t.Errorf("again after %s, error %v; want %s", result.RequeueAfter, err, wantAfter)
	}
}

func (w *statusWorld) get(name string) *v1alpha1.EvictionInterceptor {
	w.t.Helper()
	from := &v1alpha1.EvictionInterceptor{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, from); err != nil {
		w.t.Fatal(err)
	}
	return from
}

// conditions are "Type=Status Reason" of each.
func conditions(from *v1alpha1.EvictionInterceptor) []string {
	var texts []string
	for _, c := range from.Status.Conditions {
		texts = append(texts, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return texts
}

func TestStatusOfARegistration(t *testing.T) {
	register := builder.EvictionInterceptor
	cases := map[string]struct {
		from    *builder.EvictionInterceptorWrapper
		pods    int32
		want    []string
		message string
	}{
		"it selects a pod":      {register("a.x").Pods("app", "db"), 1, []string{"Accepted=True Accepted", "Evaluated=True Evaluated"}, "No expression fails for any pod."},
		"its expression is bad": {register("a.x").When("nonsense"), 0, []string{"Accepted=False InvalidExpression"}, `spec.matchConditions[0] "c0" does not compile`},
		"its name is reserved":  {register("a.k8s.io"), 0, []string{"Accepted=False ReservedName"}, "reserved for Kubernetes"},
		"it is a circle":        {register("a.x").Pods("app", "db").After("app", "db"), 0, []string{"Accepted=False OrderCircle"}, "so they would wait for each other"},
		"its selector is bad":   {register("a.x").PodsWhere("app", "Near"), 0, []string{"Accepted=False InvalidSelector"}, "spec.podSelector cannot be read"},
		"its expression fails once": {register("a.x").When("object.metadata.labels['app'] == 'db'"), 1, []string{"Accepted=True Accepted", "Evaluated=False EvaluationFailed"},
			`An expression fails for 1 pod, which is therefore not intercepted; for example pod shop/q: matchConditions[0] "c0": no such key: labels. Check optional fields with has().`},
		"its expression fails twice": {register("a.x").When("object.metadata.annotations['app'] == 'db'"), 0, []string{"Accepted=True Accepted", "Evaluated=False EvaluationFailed"},
			`An expression fails for 2 pods, which are therefore not intercepted; for example pod shop/p`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newStatusWorld(t, tc.from)
			w.status.members.see(pod("p", "db"))
			w.status.members.see(pod("q", ""))
			w.status.members.drain()
			w.must(tc.from.Name, 0)

			got := w.get(tc.from.Name)
			if diff := cmp.Diff(tc.want, conditions(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			last := got.Status.Conditions[len(got.Status.Conditions)-1]
			if !strings.Contains(last.Message, tc.message) {
				t.Errorf("message %q, want %q in it", last.Message, tc.message)
			}
			for _, c := range got.Status.Conditions {
				if c.ObservedGeneration != 1 || !c.LastTransitionTime.Time.Equal(w.clock.Now()) {
					t.Errorf("condition %s is of generation %d and time %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			want := v1alpha1.EvictionInterceptorStatus{ObservedGeneration: 1, MatchingPods: &tc.pods}
			if diff := cmp.Diff(want, got.Status, cmpopts.IgnoreFields(v1alpha1.EvictionInterceptorStatus{}, "Conditions")); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			w.clock.Step(time.Hour)
			w.must(tc.from.Name, 0)
			if w.writes != 1 {
				t.Errorf("%d writes, want no second one that says the same", w.writes)
			}
		})
	}
}

func TestStatusIsWrittenNowAndThen(t *testing.T) {
	w := newStatusWorld(t, builder.EvictionInterceptor("a.x"))
	w.must("a.x", 0)
	for i := range 50 {
		w.status.members.see(pod(fmt.Sprint(i), ""))
		w.status.members.drain()
		w.must("a.x", statusInterval)
	}
	if w.writes != 1 {
		t.Errorf("%d writes for 50 pods, want the first one only", w.writes)
	}
	w.clock.Step(statusInterval - time.Second)
	w.must("a.x", time.Second)
	w.clock.Step(time.Second)
	w.must("a.x", 0)
	if got := *w.get("a.x").Status.MatchingPods; got != 50 || w.writes != 2 {
		t.Errorf("%d pods after %d writes, want 50 after 2", got, w.writes)
	}

	// A new generation does not wait.
	changed := w.get("a.x")
	changed.Generation, changed.Spec = 2, builder.EvictionInterceptor("a.x").When("nonsense").Spec
	if err := w.client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	w.must("a.x", 0)
	if w.writes != 2 {
		t.Error("a generation was judged that the registry does not know yet")
	}
	w.registry.put(changed)
	w.status.members.drain()
	w.must("a.x", 0)
	if diff := cmp.Diff([]string{"Accepted=False InvalidExpression"}, conditions(w.get("a.x"))); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestStatusThatCannotBeWritten(t *testing.T) {
	resource := v1alpha1.SchemeGroupVersion.WithResource("evictioninterceptors").GroupResource()
	cases := map[string]struct {
		failure   error
		again     time.Duration
		wantError bool
	}{
		"a newer version":     {failure: apierrors.NewConflict(resource, "a.x", nil), again: statusRetry},
		"deleted meanwhile":   {failure: apierrors.NewNotFound(resource, "a.x")},
		"the API server down": {failure: apierrors.NewServiceUnavailable("down"), wantError: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newStatusWorld(t, builder.EvictionInterceptor("a.x"))
			w.failure = tc.failure
			result, err := w.reconcile("a.x")
			if (err != nil) != tc.wantError || result.RequeueAfter != tc.again {
				t.Errorf("again after %s, error %v; want %s, error %v", result.RequeueAfter, err, tc.again, tc.wantError)
			}
			w.failure = nil
			w.must("a.x", 0)
			if w.writes != 1 {
				t.Error("the status was not written when that was possible")
			}
		})
	}
}

func TestStatusOfAForeignObjectOfTheSameName(t *testing.T) {
	w := newStatusWorld(t, builder.EvictionInterceptor("a.x").UID("old"))
	w.registry.put(builder.EvictionInterceptor("a.x").UID("new").Obj())
	w.status.members.drain()
	w.must("a.x", 0)
	if w.writes != 0 {
		t.Error("the status of a registration was written to another one")
	}
	if err := w.client.Delete(t.Context(), &v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: "a.x"}}); err != nil {
		t.Fatal(err)
	}
	w.must("a.x", 0)
}
