package budget

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// randomWorld is a state, and what it should know.
type randomWorld struct {
	*rand.Rand
	state   *state
	pods    map[types.UID]*corev1.Pod
	budgets map[string]*v1alpha1.EvictionBudget
}

func (w *randomWorld) value() string { return []string{"ring", "web", "cache"}[w.IntN(3)] }

// event makes a pod or a budget come, change or go.
func (w *randomWorld) event() string {
	i := w.IntN(6)
	name, budget := fmt.Sprint("pod-", i), fmt.Sprint("budget-", i)
	pod := w.pods[types.UID(name)]
	switch kind := w.IntN(8); {
	case kind < 2:
		app := w.value()
		w.pods[types.UID(name)] = builder.Pod(shop, name).UID(types.UID(name)).Label("app", app).Ready().Obj()
		w.state.putPod(w.pods[types.UID(name)], noon)
		return name + " is of " + app
	case kind == 2 && pod != nil:
		pod = pod.DeepCopy()
		pod.Status.Conditions = nil
		w.pods[pod.UID] = pod
		w.state.putPod(pod, noon)
		return name + " is not ready"
	case kind == 3 && pod != nil:
		pod = builder.Pod(shop, name).UID(pod.UID).Label("app", pod.Labels["app"]).DaemonSet("agent").Obj()
		w.pods[pod.UID] = pod
		w.state.putPod(pod, noon)
		return name + " is of a DaemonSet"
	case kind == 4 && pod != nil:
		delete(w.pods, pod.UID)
		w.state.removePod(pod, noon)
		return name + " is gone"
	case kind == 5 && pod != nil:
		delete(w.pods, pod.UID)
		pod = pod.DeepCopy()
		pod.Status.Phase = corev1.PodSucceeded
		w.state.putPod(pod, noon)
		return name + " has ended"
	case kind == 6:
		delete(w.budgets, budget)
		w.state.removeBudget(types.NamespacedName{Namespace: shop, Name: budget})
		return budget + " is gone"
	}
	app, generation := w.value(), int64(1)
	if before := w.budgets[budget]; before != nil {
		generation = before.Generation + 1
	}
	w.budgets[budget] = builder.EvictionBudget(shop, budget, "app", app).UID(types.UID(budget)).Generation(generation).Obj()
	w.state.putBudget(w.budgets[budget])
	return budget + " is for " + app
}

// covered are the budgets of each pod, found out anew.
func (w *randomWorld) covered() map[types.UID][]string {
	of := map[types.UID][]string{}
	for uid, pod := range w.pods {
		for name, budget := range w.budgets {
			selector := labels.SelectorFromSet(budget.Spec.Selector.MatchLabels)
			if len(pod.OwnerReferences) == 0 && selector.Matches(labels.Set(pod.Labels)) {
				of[uid] = append(of[uid], name)
			}
		}
		slices.Sort(of[uid])
	}
	return of
}

// Whatever comes in which order, the state knows for each pod which budgets cover it, and for
// each budget which pods it covers.
func TestTheBookKnowsWhoCoversWhom(t *testing.T) {
	for seed := range uint64(100) {
		w := &randomWorld{
			rand.New(rand.NewPCG(seed, 0)), newState(fake.NewClientBuilder().WithScheme(builder.Scheme(t)).Build(), func(types.NamespacedName) {}, nil),
			map[types.UID]*corev1.Pod{}, map[string]*v1alpha1.EvictionBudget{},
		}
		w.state.putBudget(builder.EvictionBudget(shop, "first", "app", "nobody").Obj())
		var events []string
		for range 60 {
			events = append(events, w.event())
			s := w.state.space(shop)
			got, members := map[types.UID][]string{}, map[types.UID][]string{}
			for uid := range s.covering {
				got[uid] = s.of(uid)
			}
			for name, e := range s.budgets {
				for uid := range e.members {
					members[uid] = append(members[uid], name)
					slices.Sort(members[uid])
				}
			}
			want := w.covered()
			for uid, of := range want {
				if len(of) == 0 {
					delete(want, uid)
				}
			}
			if diff := cmp.Diff(want, got) + cmp.Diff(want, members); diff != "" {
				t.Fatalf("seed %d, after %q (-want +got):\n%s", seed, events, diff)
			}
		}
	}
}

// A change waits for others that come at about the same time.
func TestAChangeWaitsForOthers(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	queue := controllers.NewQueue(clock)("budget-test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	r := &runner{}
	if err := r.budgets.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.changed(types.NamespacedName{Namespace: shop, Name: "zones"})
	}
	if n := queue.Len(); n != 0 {
		t.Errorf("%d decisions at once", n)
	}
	clock.Step(time.Second)
	if _, ended := queue.Get(); ended {
		t.Error("the queue has ended")
	}
}
