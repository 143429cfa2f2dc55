package evictor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// TestEvictorSaysThatABudgetCanNeverAllow: what is known by arithmetic is reported, and
// taken back without a call when it stops to be true.
func TestEvictorSaysThatABudgetCanNeverAllow(t *testing.T) {
	t.Parallel()
	pdb := testBudget("web", 0)
	pdb.Spec.MaxUnavailable = new(intstr.FromInt32(0))
	pdb.Status.ExpectedPods, pdb.Status.DesiredHealthy, pdb.Status.CurrentHealthy = 1, 1, 1
	b := newBench(t, ourRequest().Obj(), ourPod().OwnedBy("ReplicaSet", "web").Ready().Obj(), pdb)
	b.budgets.Observe(pdb)
	b.answers = []error{builder.BlockedAnswer()}
	b.reconcile()

	never := &v1alpha1.EvictionRefusal{Reason: "BudgetNeverAllows", Budgets: []string{"web"}, Message: "PodDisruptionBudget web can never allow a disruption (maxUnavailable is 0)."}
	b.wantRefusal("after the attempt", never)
	if diff := cmp.Diff(map[string]float64{"budget-never-allows first": 1}, b.attempts()); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	note := ": The eviction of pod web-1 failed (attempt 1, the first try of this manager). " + never.Message + " The disruption budget web needs 3 healthy pods and has 3 currently."
	if diff := cmp.Diff([]string{"EvictionRequest BudgetNeverAllows" + note, "Pod BudgetNeverAllows" + note}, b.log.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	can := &v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: "The disruption budget web needs 3 healthy pods and has 3 currently."}
	for _, tc := range []struct {
		name   string
		change func(*policyv1.PodDisruptionBudget)
		want   *v1alpha1.EvictionRefusal
		woken  int
	}{
		{"the same again", func(*policyv1.PodDisruptionBudget) {}, never, 0},
		{"one may be unavailable, and another one is", func(pdb *policyv1.PodDisruptionBudget) {
			pdb.Spec.MaxUnavailable = new(intstr.FromInt32(1))
			pdb.Generation, pdb.Status.ObservedGeneration = 2, 2
			pdb.Status.ExpectedPods, pdb.Status.DesiredHealthy = 2, 1
		}, can, 1},
		{"and back, as nobody has noticed yet", func(pdb *policyv1.PodDisruptionBudget) {
			pdb.Generation, pdb.Status.ObservedGeneration = 3, 2
		}, can, 0},
		{"and back", func(pdb *policyv1.PodDisruptionBudget) {
			pdb.Generation, pdb.Status.ObservedGeneration = 3, 3
		}, never, 1},
	} {
		changed := pdb.DeepCopy()
		tc.change(changed)
		b.budgetEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: pdb, ObjectNew: changed}, b.queue)
		if n := b.queue.Len(); n != tc.woken {
			t.Fatalf("%s: %d keys in the queue, want %d", tc.name, n, tc.woken)
		}
		for b.queue.Len() > 0 {
			key, _ := b.queue.Get()
			b.queue.Done(key)
		}
		b.clock.Step(time.Second)
		b.reconcile() // A call would fail the test: there is no answer left.
		b.wantRefusal(tc.name, tc.want)
	}
}

func (b *bench) wantRefusal(what string, want *v1alpha1.EvictionRefusal) {
	b.t.Helper()
	if diff := cmp.Diff(want, v1alpha1.ReportOf(b.request(), v1alpha1.ImperativeEvictionInterceptor).Refusal, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("refusal, %s (-want +got):\n%s", what, diff)
	}
}

func TestJudgementsOfBudgets(t *testing.T) {
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	const never = "can never allow a disruption (maxUnavailable is 0)"
	cases := map[string]func(q budgetTest){
		"those that wait hear of it, once": func(q budgetTest) {
			q.refused(1, 2)
			seen, _ := q.Known(web)
			q.want("never", q.Judge(web, seen, never), 1, 2)
			q.want("the same", q.Judge(web, seen, never))
			q.want("it can", q.Judge(web, seen, ""), 1, 2)
		},
		"a judgement of an older status does not count": func(q budgetTest) {
			q.refused(1)
			seen, _ := q.Known(web)
			q.Observe(testBudget("web", 0))
			q.want("too late", q.Judge(web, seen, never))
			if got := q.Never(requestKey(1)); got != "" {
				q.t.Errorf("never: %q", got)
			}
		},
		"it is forgotten while nobody waits": func(q budgetTest) {
			q.refused(1)
			seen, _ := q.Known(web)
			q.want("never", q.Judge(web, seen, never), 1)
			q.begin(1)
			q.Observe(testBudget("web", 0))
			if _, known := q.Known(web); known || q.Never(requestKey(1)) != "" {
				q.t.Errorf("known %v, never %q", known, q.Never(requestKey(1)))
			}
		},
		"it is kept for those that wait until the next one": func(q budgetTest) {
			q.refused(1)
			seen, _ := q.Known(web)
			q.want("never", q.Judge(web, seen, never), 1)
			q.Observe(testBudget("web", 0))
			if _, known := q.Known(web); known || q.Never(requestKey(1)) != never {
				q.t.Errorf("known %v, never %q", known, q.Never(requestKey(1)))
			}
		},
		"pods that leave one after the other make it look so for a moment": func(q budgetTest) {
			q.refused(1, 2)
			q.want("it can", q.Observe(testBudget("web", 1)), 1)
			q.Observe(testBudget("web", 0))
			if _, known := q.Known(web); !known {
				q.t.Error("a first attempt counts, although the budget has allowed")
			}
			if _, doubtful := q.Doubtful(web); doubtful {
				q.t.Error("a status is doubted, although the budget has allowed")
			}
			seen, _ := q.Known(web)
			q.want("after a pause", q.Judge(web, seen, never), 2)
			if _, known := q.Known(web); !known {
				q.t.Error("counted twice for one status")
			}
			q.Observe(testBudget("web", 0))
			if _, doubtful := q.Doubtful(web); !doubtful {
				q.t.Error("nobody looks whether it is over")
			}
		},
		"a new spec is doubted until a status is about it": func(q budgetTest) {
			q.refused(1)
			seen, _ := q.Known(web)
			q.want("it can", q.Judge(web, seen, ""))
			for _, observed := range []int64{1, 2} {
				pdb := testBudget("web", 0)
				pdb.Generation, pdb.Status.ObservedGeneration = 2, observed
				q.Observe(pdb)
				seen, doubtful := q.Doubtful(web)
				if !doubtful {
					q.t.Errorf("of generation 2, not doubted with a status of %d", observed)
				}
				q.want("it can", q.Judge(web, seen, ""))
			}
			if _, doubtful := q.Doubtful(web); doubtful {
				q.t.Error("doubted for ever")
			}
		},
		"a budget that is not known": func(q budgetTest) {
			q.want("nobody", q.Judge(types.NamespacedName{Namespace: "shop", Name: "other"}, 0, never))
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			run(newBudgetTest(t, testBudget("web", 0)))
		})
	}
}

// delays records after how long each item is due.
type delays struct {
	controllers.Queue
	of []time.Duration
}

func (d *delays) AddAfter(_ reconcile.Request, after time.Duration) { d.of = append(d.of, after) }

// Thousands of writes that only correct what is said would delay the evictions that a changed
// budget allows.
func TestCorrectionsComeAtAPace(t *testing.T) {
	t.Parallel()
	var queue delays
	correct(&queue, make([]types.NamespacedName, correctedAtOnce+2))
	want := append(make([]time.Duration, correctedAtOnce), correctionPause, 2*correctionPause)
	if diff := cmp.Diff(want, queue.of); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
}
