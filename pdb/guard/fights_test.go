package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// mostPerMinute is how often an object may be written within a minute, whatever others do
// to it.
const mostPerMinute = 12

// times notes when writes are made.
type times []time.Time

// most is the greatest number of them within a minute.
func (w times) most() int {
	most := 0
	for i, from := range w {
		n := 0
		for _, at := range w[i:] {
			if at.Before(from.Add(time.Minute)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// fight lets somebody undo for an hour whatever the guard writes, and returns when it wrote.
func (b *bench) fight(undo func()) times {
	b.t.Helper()
	var written times
	const step = 5 * time.Second
	for range time.Hour / step {
		for range b.work() {
			written = append(written, b.clock.Now())
		}
		undo()
		b.clock.Step(step)
	}
	return written
}

// Somebody writes the same object as we, each time we do. We insist, but not without a
// pause, and not less and less for ever.
func TestAFightIsSlow(t *testing.T) {
	always := registrations{interA: {Guard: v1alpha1.GuardAlways}}
	t.Run("over the label of a pod", func(t *testing.T) {
		b := newBench(t, webPod("web-1").Obj(), ours())
		b.Registrations, b.Owner = always, ""
		written := b.fight(func() {
			pod := b.pod("web-1")
			if delete(pod.Labels, v1alpha1.GuardLabel); b.api.Update(t.Context(), pod) == nil {
				b.written.forgetWrote(client.ObjectKeyFromObject(pod)) // As its event does.
				b.observe("web-1")
			}
		})
		b.slow(written)
	})
	t.Run("over a budget that is changed", func(t *testing.T) {
		b := newBench(t, webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj(), ours())
		b.Registrations, b.Owner = always, ""
		written := b.fight(func() {
			before := b.guardBudget()
			after := before.DeepCopy()
			after.Spec.Selector.MatchLabels["app"] = "web"
			if err := b.api.Update(t.Context(), after); err != nil {
				t.Fatal(err)
			}
			b.budgetChanged(t.Context(), before, after, false, b.queue)
		})
		b.slow(written)
		if !slices.Contains(b.recorder.events, "*v1.PodDisruptionBudget GuardBudgetChanged") {
			t.Errorf("nobody is told: %v", b.recorder.events)
		}
		if n := len(b.recorder.events); n != 1 {
			t.Errorf("it is told %d times", n)
		}
	})
	t.Run("over a budget that is deleted", func(t *testing.T) {
		b := newBench(t, webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj(), ours())
		b.Registrations = always
		b.slow(b.fight(func() {
			before := b.guardBudget()
			if before == nil {
				return
			}
			if err := b.api.Delete(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			b.use.seen("shop")
			b.budgetChanged(t.Context(), before, nil, false, b.queue)
		}))
	})
}

// A new eviction is no fight: whoever begins and calls off several within a minute finds
// each of them guarded at once, and the guard open at once when it is over.
func TestEachRequestIsGuardedAtOnce(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), ours())
	b.Owner = ""
	for i := range 6 {
		er := request("web-1", interA).UID(types.UID(fmt.Sprint("er-", i))).Active(interA, t0).Obj()
		b.store(er)
		b.work()
		if diff := cmp.Diff([]string{"web-1"}, b.guarded()); diff != "" {
			t.Errorf("eviction %d has begun, guarded pods (-want +got):\n%s", i, diff)
		}
		if err := b.api.Delete(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		b.observe("web-1")
		b.work()
		if diff := cmp.Diff([]string(nil), b.guarded()); diff != "" {
			t.Errorf("eviction %d is over, guarded pods (-want +got):\n%s", i, diff)
		}
		b.clock.Step(5 * time.Second)
	}
}

// slow wants that we have insisted, but not often.
func (b *bench) slow(written times) {
	b.t.Helper()
	if most := written.most(); most > mostPerMinute {
		b.t.Errorf("%d writes of one object within a minute", most)
	}
	if n := len(written); n < 10 || n > 30 {
		b.t.Errorf("%d writes in an hour, want about one in five minutes", n)
	}
}

// A controller that loses a pod makes another, so its pods keep the label they have.
func TestAPodIsNotTakenFromItsController(t *testing.T) {
	closedLabel := map[string]string{"app": "web", v1alpha1.GuardLabel: v1alpha1.GuardClosed}
	selector := &metav1.LabelSelector{MatchLabels: closedLabel}
	open := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"app": "web"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.GuardLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner-1"}
	other := meta
	other.UID = "owner-2"
	tests := map[string]struct {
		kind   string
		owner  client.Object
		closed bool
		want   []string
	}{
		"a ReplicaSet":                     {"apps/v1 ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector}}, true, nil},
		"a StatefulSet":                    {"apps/v1 StatefulSet", &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector}}, true, nil},
		"a DaemonSet":                      {"apps/v1 DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector}}, true, nil},
		"a Job":                            {"batch/v1 Job", &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Selector: selector}}, true, nil},
		"a ReplicationController":          {"v1 ReplicationController", &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: closedLabel}}, true, nil},
		"one of pods without the label":    {"apps/v1 ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: open}}, false, nil},
		"one that does not look at it":     {"apps/v1 ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: app}}, true, []string{"patch Pod shop/web-1"}},
		"one that is gone":                 {"apps/v1 ReplicaSet", nil, true, []string{"patch Pod shop/web-1"}},
		"one that was replaced by another": {"apps/v1 ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: other, Spec: appsv1.ReplicaSetSpec{Selector: selector}}, true, []string{"patch Pod shop/web-1"}},
		"one of a kind that nobody knows":  {"apps.example.com/v1 Fleet", nil, true, []string{"patch Pod shop/web-1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			apiVersion, kind, _ := strings.Cut(tc.kind, " ")
			pod := webPod("web-1").Change(func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "owner-1", Controller: new(true)}}
			})
			objects := []client.Object{ours(func(pdb *policyv1.PodDisruptionBudget) { pdb.OwnerReferences = ownedByRoles("drawbridge-guard") })}
			if tc.owner != nil {
				objects = append(objects, tc.owner)
			}
			if tc.closed {
				pod.Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed)
			} else {
				objects = append(objects, request("web-1", interA).Active(interA, t0).Obj())
			}
			b := newBench(t, append(objects, pod.Obj())...)
			left := len(tc.want) == 0
			for range 3 {
				b.observe("web-1")
				if got := b.work(); !slices.Equal(got, tc.want) {
					t.Errorf("writes %v, want %v", got, tc.want)
				}
				tc.want = nil
			}
			if told := len(b.recorder.events); told > 1 || (told == 1) != left {
				t.Errorf("left: %t, but told %v", left, b.recorder.events)
			}
		})
	}
	t.Run("it is left closed, and needs no budget", func(t *testing.T) {
		set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector}}
		pod := webPod("web-1").Interceptors().Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Change(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "owner-1", Controller: new(true)}}
		})
		b := newBench(t, set, pod.Obj())
		b.observe("web-1")
		b.work()
		b.want("pods", map[string]int{"label_left": 1}, b.counted())
		if needed, err := b.needed(t.Context(), "shop"); needed || err != nil {
			t.Errorf("needed: %t, error %v", needed, err)
		}
	})
	t.Run("another worker learns what it selects by in the middle", func(t *testing.T) {
		set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector}}
		pod := webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Change(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "owner-1", Controller: new(true)}}
		})
		b := newBench(t, set, pod.Obj())
		b.Resolver = endsMeanwhile{b.Resolver, func() {
			if err := b.owners.learn(t.Context(), b.APIReader, b.pod("web-1")); err != nil {
				t.Fatal(err)
			}
		}}
		b.writes = nil
		if _, err := b.reconcilePod(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-1"}); err != nil {
			t.Fatal(err)
		}
		b.want("writes", []string(nil), b.writes)
	})
	t.Run("nobody knows for now what it selects by", func(t *testing.T) {
		pod := webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Change(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "owner-1", Controller: new(true)}}
		})
		b := newBench(t, pod.Obj())
		b.APIReader = failing{b.api, apierrors.NewServerTimeout(schema.GroupResource{Resource: "replicasets"}, "get", 1)}
		b.writes = nil
		if _, err := b.reconcilePod(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-1"}); !apierrors.IsServerTimeout(err) {
			t.Errorf("error %v, want that of the API server", err)
		}
		b.want("writes", []string(nil), b.writes)
	})
}

// A budget whose owner, or one more field, is not as wanted.
func TestABudgetIsRepairedAsFarAsItCanBe(t *testing.T) {
	b := newBench(t, webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed).Obj(), ours())
	b.Registrations = registrations{interA: {Guard: v1alpha1.GuardAlways}}
	b.queue.Add(namespaceKey("shop"))
	b.want("writes", []string{"update PodDisruptionBudget shop/drawbridge-guard"}, b.work())
	b.budgetChanged(t.Context(), ours(), b.guardBudget(), false, b.queue)
	b.want("writes after it", []string(nil), b.work())
	want := []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "drawbridge-guard", UID: "role-1"}}
	b.want("owners", want, b.guardBudget().OwnerReferences)
	b.want("events", []string(nil), b.recorder.events)
	b.want("budgets", map[string]int{"in_force": 1}, b.budgets())
}

// The budget of somebody else is told of once, and keeps no guard away.
func TestABudgetThatSelectsByTheGuardsLabelIsToldOfOnce(t *testing.T) {
	b := newBench(t, webPod("web-1").Obj(), ours(), request("web-1", interA).Active(interA, t0).Obj())
	b.Owner = ""
	stranger := builder.Budget("shop", "stranger").UID("pdb-2").Selects(v1alpha1.GuardLabel, v1alpha1.GuardClosed).MinAvailable("0").Obj()
	if err := b.api.Create(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.budgetChanged(t.Context(), nil, stranger, false, b.queue)
		b.observe("web-1")
		b.work()
	}
	b.want("guarded", []string{"web-1"}, b.guarded())
	b.want("events", []string{"*v1.PodDisruptionBudget GuardLabelSelected"}, b.recorder.events)
}
