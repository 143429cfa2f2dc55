package guard

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// idle makes it so long ago that a pod of the namespace lost its guard.
func (b *bench) idle(d time.Duration) {
	b.t.Helper()
	b.clock.Step(d)
	b.queue.Add(namespaceKey("shop"))
}

func TestABudgetThatNobodyNeedsGoesAfterAWhile(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), request("web-1", interA).Active(interA, t0).Obj())
	b.observe("web-1")
	b.work()
	b.count()
	b.work()
	b.idle(24 * time.Hour)
	b.want("writes while a pod is guarded", []string(nil), b.work())

	before := b.pod("web-1")
	b.store(request("web-1", interA).Processed(interA).Active(imperative, t0).Obj())
	b.work()
	b.releases(before, b.pod("web-1"), b.queue)
	b.idle(DefaultIdleDelay - time.Second)
	b.want("writes before the delay is over", []string(nil), b.work())
	b.idle(time.Second)
	b.want("writes after it", []string{"delete PodDisruptionBudget shop/drawbridge-guard"}, b.work())

	// The next eviction, while our cache still shows the budget that is gone.
	stale := ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.UID, pdb.ResourceVersion = "uid-of-drawbridge-guard", "" })
	if err := b.api.Create(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	b.fail = func(call string) error {
		if strings.HasPrefix(call, "create") {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, "drawbridge-guard")
		}
		return nil
	}
	b.store(request("web-1", interA).Active(interA, t0).Obj())
	b.want("writes with a stale cache", []string(nil), b.work())
	b.want("guarded by a budget that is gone", []string(nil), b.guarded())
}

func TestWhereNoBudgetCanBe(t *testing.T) {
	need := func(t *testing.T, objects ...client.Object) *bench {
		t.Helper()
		b := newBench(t, append(objects, webPod("web-1").Obj())...)
		b.Registrations = registrations{interA: {Guard: v1alpha1.GuardAlways}}
		b.observe("web-1")
		return b
	}
	t.Run("somebody else's has its name", func(t *testing.T) {
		foreign := theirs()
		foreign.Spec.Selector.MatchLabels["app"] = "db"
		b := need(t, foreign)
		b.want("writes", []string(nil), b.work())
		b.observe("web-1")
		b.work()
		if len(b.recorder.events) != 1 || !strings.HasSuffix(b.recorder.events[0], "GuardNameTaken") {
			t.Errorf("events: want one, got %v", b.recorder.events)
		}
		b.want("pods", map[string]int{"unguarded": 1}, b.counted())
		if err := b.api.Delete(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		b.budgetChanged(t.Context(), foreign, nil, false, b.queue)
		b.want("writes when it goes", []string{"create PodDisruptionBudget shop/drawbridge-guard"}, b.work())
	})
	t.Run("the owner is gone, as we are", func(t *testing.T) {
		b := need(t)
		b.Owner = "no-such-role"
		if _, err := b.reconcileBudget(t.Context(), "shop"); err != nil {
			t.Errorf("nobody needs one yet: %v", err)
		}
		b.use.wait(client.ObjectKey{Namespace: "shop", Name: "web-1"})
		if _, err := b.reconcileBudget(t.Context(), "shop"); !apierrors.IsNotFound(err) {
			t.Errorf("error %v, want not found", err)
		}
		if b.guardBudget() != nil {
			t.Error("a budget was made that nobody would ever remove")
		}
	})
	t.Run("the namespace is being deleted", func(t *testing.T) {
		b := need(t)
		b.fail = func(call string) error {
			if !strings.HasPrefix(call, "create") {
				return nil
			}
			err := apierrors.NewForbidden(schema.GroupResource{}, "drawbridge-guard", errors.New("terminating"))
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
			return err
		}
		b.want("writes", []string(nil), b.work())
	})
	t.Run("somebody deletes it", func(t *testing.T) {
		b := need(t, ours())
		b.work()
		if err := b.api.Delete(t.Context(), b.guardBudget()); err != nil {
			t.Fatal(err)
		}
		b.budgetEvents().Delete(t.Context(), event.DeleteEvent{Object: ours()}, b.queue)
		b.want("writes", []string{"create PodDisruptionBudget shop/drawbridge-guard"}, b.work())
	})
}
