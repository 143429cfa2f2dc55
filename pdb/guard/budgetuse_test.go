package guard

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientinterceptor "sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A label and the removal of its budget are decided by different workers: one of
// them has to give way.
func TestABudgetIsEitherInUseOrRemoved(t *testing.T) {
	pod := types.NamespacedName{Namespace: "shop", Name: "web-1"}
	tests := map[string]struct {
		before func(*budgetUse)
		want   bool
	}{
		"nobody has used it since":     {func(m *budgetUse) { m.need("shop", t0) }, true},
		"somebody has taken it":        {func(m *budgetUse) { m.need("shop", t0); m.use("shop", "pdb-1", t0.Add(time.Second)) }, false},
		"somebody waits for it":        {func(m *budgetUse) { m.wait(pod) }, false},
		"somebody waited, and settled": {func(m *budgetUse) { m.wait(pod); m.settle(pod) }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newBudgetUse()
			tc.before(m)
			if got := m.remove("shop", "pdb-1", t0); got != tc.want {
				t.Errorf("removed: got %t, want %t", got, tc.want)
			}
			if got := m.use("shop", "pdb-1", t0.Add(time.Minute)); got == tc.want {
				t.Errorf("can be used: got %t, want %t", got, !tc.want)
			}
			if !m.use("shop", "pdb-2", t0.Add(time.Minute)) {
				t.Error("its successor cannot be used")
			}
		})
	}
}

func TestTheFirstListOfBudgetsIsLeftToTheRescan(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), request("web-1", interA).Active(interA, t0).Obj())
	theirs := builder.Budget("shop", "db").Selects("app", "web").MinAvailable("1").Obj()
	b.budgetChanged(t.Context(), nil, theirs, true, b.queue)
	if n := b.queue.Len(); n != 0 {
		t.Errorf("a budget of the first list enqueues %d keys, want none", n)
	}
	b.budgetChanged(t.Context(), nil, theirs, false, b.queue)
	if n := b.queue.Len(); n != 1 {
		t.Errorf("a budget that comes later enqueues %d keys, want one", n)
	}
	b.budgetChanged(t.Context(), nil, ours(), true, b.queue)
	if n := b.queue.Len(); n != 2 {
		t.Errorf("our own budget enqueues %d keys, want one more", n-1)
	}
}

// hiding is a cache that does not show budgets yet.
func (b *bench) hiding() client.WithWatch {
	funcs := b.counting()
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, ok := obj.(*policyv1.PodDisruptionBudget); ok {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "poddisruptionbudgets"}, key.Name)
		}
		return c.Get(ctx, key, obj, opts...)
	}
	return clientinterceptor.NewClient(b.api, funcs)
}

func TestABudgetIsMadeOnceHoweverLateTheCacheShowsIt(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), webPod("web-2").Obj(), request("web-1", interA).Active(interA, t0).Obj())
	seeing := b.Client
	b.Client = b.hiding()
	b.observe("web-1")
	b.want("writes, first of all the budget", []string{"create PodDisruptionBudget shop/drawbridge-guard"}, b.work())
	b.store(request("web-2", interA).Active(interA, t0).Obj())
	b.want("writes while it is not shown", []string(nil), b.work())
	b.want("pods that have the label before the budget counts", []string(nil), b.guarded())

	b.Client = seeing
	b.count()
	b.want("writes when it is shown and counted", []string{"patch Pod shop/web-1", "patch Pod shop/web-2"}, b.work())

	// Somebody removes it, which our cache may show as its end, or not at all.
	removed := b.guardBudget()
	if err := b.api.Delete(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	b.budgetEvents().Delete(t.Context(), event.DeleteEvent{Object: removed}, b.queue)
	b.want("writes when it is gone", []string{"create PodDisruptionBudget shop/drawbridge-guard"}, b.work())
	if err := b.api.Delete(t.Context(), b.guardBudget()); err != nil {
		t.Fatal(err)
	}
	b.idle(pause)
	b.want("writes a pause later", []string{"create PodDisruptionBudget shop/drawbridge-guard"}, b.work())
}

// endsMeanwhile is a resolver under whose eyes the pod ends.
type endsMeanwhile struct {
	registration.Resolver
	end func()
}

func (r endsMeanwhile) Resolve(pod *corev1.Pod) ([]string, error) {
	r.end()
	return r.Resolver.Resolve(pod)
}

func TestAPodThatEndsMeanwhileIsNotCountedForEver(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), request("web-1", interA).Active(interA, t0).Obj())
	pod := b.pod("web-1")
	b.Resolver = endsMeanwhile{b.Resolver, func() {
		if err := b.api.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		b.podEvents().Delete(t.Context(), event.DeleteEvent{Object: pod}, b.queue)
	}}
	if _, err := b.reconcilePod(t.Context(), client.ObjectKeyFromObject(pod)); err != nil {
		t.Fatal(err)
	}
	b.want("pods", map[string]int{}, b.counted())
}

func TestALabelIsNotWrittenTwiceWhileTheCacheDoesNotShowIt(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), ours(), request("web-1", interA).Active(interA, t0).Obj())
	stale, key := b.pod("web-1"), client.ObjectKey{Namespace: "shop", Name: "web-1"}
	funcs := b.counting()
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if pod, ok := obj.(*corev1.Pod); ok {
			stale.DeepCopyInto(pod)
			return nil
		}
		return c.Get(ctx, key, obj, opts...)
	}
	b.Client = clientinterceptor.NewClient(b.api, funcs)
	for _, want := range []time.Duration{0, pause} {
		result, err := b.reconcilePod(t.Context(), key)
		if err != nil || result.RequeueAfter != want {
			t.Fatalf("looks again after %s with error %v, want %s", result.RequeueAfter, err, want)
		}
	}
	b.want("writes", []string{"patch Pod shop/web-1"}, b.writes)

	b.podEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: stale, ObjectNew: b.pod("web-1")}, b.queue)
	if n := len(b.written.labels); n != 0 {
		t.Errorf("%d writes are remembered that the cache shows", n)
	}
}
