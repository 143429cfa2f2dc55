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

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
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

	before := pdb
	for _, tc := range []struct {
		name   string
		change func(*policyv1.PodDisruptionBudget)
		want   *v1alpha1.EvictionRefusal
		woken  int
	}{
		{"the same again", func(*policyv1.PodDisruptionBudget) {}, never, 0},
		{"one may be unavailable, and another one is", func(pdb *policyv1.PodDisruptionBudget) {
			pdb.Spec.MaxUnavailable = new(intstr.FromInt32(1))
			pdb.Status.ExpectedPods, pdb.Status.DesiredHealthy = 2, 1
		}, &v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: "The disruption budget web needs 3 healthy pods and has 3 currently."}, 1},
		{"and back", func(*policyv1.PodDisruptionBudget) {}, never, 1},
	} {
		changed := pdb.DeepCopy()
		tc.change(changed)
		b.budgetEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: changed}, b.queue)
		before = changed
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
			seen, _ := q.Judged(web)
			q.want("never", q.Judge(web, seen, never, true), 1, 2)
			q.want("the same", q.Judge(web, seen, never, true))
			q.want("it can", q.Judge(web, seen, "", false), 1, 2)
		},
		"a judgement of an older status does not count": func(q budgetTest) {
			q.refused(1)
			seen, _ := q.Judged(web)
			q.Observe(testBudget("web", 0))
			q.want("too late", q.Judge(web, seen, never, true))
			if got := q.Never(requestKey(1)); got != "" {
				q.t.Errorf("never: %q", got)
			}
		},
		"it is forgotten while nobody waits": func(q budgetTest) {
			q.refused(1)
			seen, _ := q.Judged(web)
			q.want("never", q.Judge(web, seen, never, true), 1)
			q.begin(1)
			q.Observe(testBudget("web", 0))
			if _, judged := q.Judged(web); judged || q.Never(requestKey(1)) != "" {
				q.t.Errorf("judged %v, never %q", judged, q.Never(requestKey(1)))
			}
		},
		"it is kept for those that wait until the next one": func(q budgetTest) {
			q.refused(1)
			seen, _ := q.Judged(web)
			q.want("never", q.Judge(web, seen, never, true), 1)
			q.Observe(testBudget("web", 0))
			if _, judged := q.Judged(web); judged || q.Never(requestKey(1)) != never {
				q.t.Errorf("judged %v, never %q", judged, q.Never(requestKey(1)))
			}
		},
		"pods that leave one after the other make it look so for a moment": func(q budgetTest) {
			q.refused(1, 2)
			seen, _ := q.Judged(web)
			q.want("it can", q.Judge(web, seen, "", true))
			q.want("a moment", q.Judge(web, seen, never, false))
			if got := q.Never(requestKey(1)); got != "" {
				q.t.Errorf("never: %q", got)
			}
			q.want("after a pause", q.Judge(web, seen, never, true), 1, 2)
		},
		"a budget that is not known": func(q budgetTest) {
			q.want("nobody", q.Judge(types.NamespacedName{Namespace: "shop", Name: "other"}, 0, never, true))
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			run(newBudgetTest(t, testBudget("web", 0)))
		})
	}
}
