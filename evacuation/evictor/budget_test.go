package evictor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testBudget is a budget of namespace "shop" that selects app=web.
func testBudget(name string, allowed int32, disrupted ...string) *policyv1.PodDisruptionBudget {
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed},
	}
	for _, pod := range disrupted {
		if pdb.Status.DisruptedPods == nil {
			pdb.Status.DisruptedPods = map[string]metav1.Time{}
		}
		pdb.Status.DisruptedPods[pod] = metav1.Time{}
	}
	return pdb
}

func requestKey(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("uid-%d", n)}
}

var webLabels = map[string]string{"app": "web"}

// budgetTest drives a queue; request n has the pod "pod-n" and the age n.
type budgetTest struct {
	t *testing.T
	*budgetQueue
}

func newBudgetTest(t *testing.T, budgets ...*policyv1.PodDisruptionBudget) budgetTest {
	t.Helper()
	q := budgetTest{t, newBudgetQueue()}
	for _, pdb := range budgets {
		q.Observe(pdb)
	}
	return q
}

func (q budgetTest) begin(n int) []string {
	q.t.Helper()
	return q.Begin(requestKey(n), fmt.Sprintf("pod-%d", n), webLabels, at(n))
}

// refused makes those requests wait.
func (q budgetTest) refused(requests ...int) {
	q.t.Helper()
	for _, n := range requests {
		q.begin(n)
		q.want("refusing", q.End(requestKey(n), budgetRefused))
	}
}

// want compares who is to try, in any order.
func (q budgetTest) want(what string, got []types.NamespacedName, requests ...int) {
	q.t.Helper()
	want := map[types.NamespacedName]bool{}
	for _, n := range requests {
		want[requestKey(n)] = true
	}
	have := map[types.NamespacedName]bool{}
	for _, key := range got {
		if have[key] {
			q.t.Errorf("%s wakes %s twice", what, key)
		}
		have[key] = true
	}
	if diff := cmp.Diff(want, have); diff != "" {
		q.t.Errorf("%s wakes (-want +got):\n%s", what, diff)
	}
}

func TestBudgetQueue(t *testing.T) {
	t.Parallel()
	cases := map[string]func(q budgetTest){
		"a budget wakes as many as it allows, the oldest first": func(q budgetTest) {
			q.refused(3, 1, 4, 2)
			q.want("2 allowed", q.Observe(testBudget("web", 2)), 1, 2)
			if !q.Woken(requestKey(1)) || q.Woken(requestKey(3)) {
				q.t.Error("only those woken are woken")
			}
		},
		"ties are broken by name": func(q budgetTest) {
			for _, n := range []int{2, 1} {
				q.Begin(requestKey(n), "pod", webLabels, at(0))
				q.End(requestKey(n), budgetRefused)
			}
			q.want("1 allowed", q.Observe(testBudget("web", 1)), 1)
		},
		"those in flight count against the allowance": func(q budgetTest) {
			q.refused(1, 2, 3)
			q.want("1 allowed", q.Observe(testBudget("web", 1)), 1)
			q.want("the same again", q.Observe(testBudget("web", 1)))
			q.want("2 allowed", q.Observe(testBudget("web", 2)), 2)
		},
		"a first attempt in flight counts too": func(q budgetTest) {
			q.refused(1)
			q.begin(2)
			q.want("1 allowed", q.Observe(testBudget("web", 1)))
			q.want("2 allowed", q.Observe(testBudget("web", 2)), 1)
		},
		"an admitted one counts until a status shows it": func(q budgetTest) {
			q.refused(1, 2, 3)
			q.want("1 allowed", q.Observe(testBudget("web", 1)), 1)
			q.begin(1)
			q.want("admission", q.End(requestKey(1), budgetAccepted))
			q.want("a status from before", q.Observe(testBudget("web", 1)))
			q.want("the status after it", q.Observe(testBudget("web", 0, "pod-1")))
			q.want("room for another one", q.Observe(testBudget("web", 1)), 2)
		},
		"an admitted one whose status came before the answer does not count": func(q budgetTest) {
			q.refused(1, 2)
			q.want("2 allowed", q.Observe(testBudget("web", 1)), 1)
			q.begin(1)
			q.want("the status overtakes the answer", q.Observe(testBudget("web", 0, "pod-1")))
			q.want("admission", q.End(requestKey(1), budgetAccepted))
			q.want("room for another one", q.Observe(testBudget("web", 1)), 2)
		},
		"an admitted one counts no more when its pod ends": func(q budgetTest) {
			q.refused(1, 2)
			q.Observe(testBudget("web", 1))
			q.begin(1)
			q.End(requestKey(1), budgetAccepted)
			q.want("the pod ends", q.Forget(requestKey(1)))
			q.want("room for another one", q.Observe(testBudget("web", 1)), 2)
		},
		"a woken one that is refused keeps its place": func(q budgetTest) {
			q.refused(1, 2)
			q.want("1 allowed", q.Observe(testBudget("web", 1)), 1)
			q.begin(1)
			q.want("refused", q.End(requestKey(1), budgetRefused))
			q.want("1 allowed again", q.Observe(testBudget("web", 1)), 1)
		},
		"a woken one that fails for another reason gives its room away": func(q budgetTest) {
			q.refused(1, 2)
			q.Observe(testBudget("web", 1))
			q.begin(1)
			q.want("failed", q.End(requestKey(1), budgetOther), 2)
		},
		"a woken one that needs no attempt gives its room away": func(q budgetTest) {
			q.refused(1, 2)
			q.Observe(testBudget("web", 1))
			q.want("forgotten", q.Forget(requestKey(1)), 2)
		},
		"an event during the attempt is not lost": func(q budgetTest) {
			q.begin(1)
			q.want("1 allowed while it is called", q.Observe(testBudget("web", 1)))
			q.want("refused by the state before", q.End(requestKey(1), budgetRefused), 1)
		},
		"a refusal without an event in between counts more than our cache": func(q budgetTest) {
			q.want("1 allowed, nobody waits", q.Observe(testBudget("web", 1)))
			q.refused(1)
			q.want("1 allowed", q.Observe(testBudget("web", 1)), 1)
		},
		"a status behind its spec wakes nobody": func(q budgetTest) {
			q.refused(1)
			stale := testBudget("web", 5)
			stale.Generation = 2
			q.want("5 allowed for the spec before", q.Observe(stale))
			stale.Status.ObservedGeneration = 2
			q.want("in step", q.Observe(stale), 1)
		},
		"a deleted budget wakes all": func(q budgetTest) {
			q.refused(1, 2, 3)
			q.want("deletion", q.Remove(types.NamespacedName{Namespace: "shop", Name: "web"}), 1, 2, 3)
		},
		"a budget that selects others now wakes all": func(q budgetTest) {
			q.refused(1, 2)
			changed := testBudget("web", 0)
			changed.Spec.Selector.MatchLabels["app"] = "db"
			q.want("new selector", q.Observe(changed), 1, 2)
		},
		"a selector that selects nothing differs from one that selects all": func(q budgetTest) {
			all, none := testBudget("web", 0), testBudget("web", 0)
			all.Spec.Selector, none.Spec.Selector = &metav1.LabelSelector{}, nil
			q.want("selects all", q.Observe(all))
			q.refused(1)
			q.want("selects nothing", q.Observe(none), 1)
		},
		"a selector that cannot be read selects nothing": func(q budgetTest) {
			q.refused(1)
			broken := testBudget("web", 0)
			broken.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}
			q.want("unreadable selector", q.Observe(broken), 1)
		},
		"a budget that arrives after the refusal takes in who waits": func(q budgetTest) {
			q.Remove(types.NamespacedName{Namespace: "shop", Name: "web"})
			q.refused(1)
			q.want("a new budget", q.Observe(testBudget("new", 0)))
			q.want("1 allowed", q.Observe(testBudget("new", 1)), 1)
		},
		"with two budgets nobody is woken until one is gone": func(q budgetTest) {
			q.refused(1)
			q.want("a second budget", q.Observe(testBudget("two", 5)))
			q.want("the first allows", q.Observe(testBudget("web", 5)))
			q.want("the second is gone", q.Remove(types.NamespacedName{Namespace: "shop", Name: "two"}), 1)
			if diff := cmp.Diff([]string{"web"}, q.begin(1)); diff != "" {
				q.t.Errorf("budgets (-want +got):\n%s", diff)
			}
		},
		"with three budgets the end of one wakes nobody": func(q budgetTest) {
			q.Observe(testBudget("two", 5))
			q.Observe(testBudget("three", 5))
			q.refused(1)
			q.want("one of three is gone", q.Remove(types.NamespacedName{Namespace: "shop", Name: "two"}))
			q.want("two of three are gone", q.Remove(types.NamespacedName{Namespace: "shop", Name: "three"}), 1)
		},
		"budgets are named in order": func(q budgetTest) {
			q.Observe(testBudget("b", 0))
			q.Observe(testBudget("a", 0))
			if diff := cmp.Diff([]string{"a", "b", "web"}, q.begin(1)); diff != "" {
				q.t.Errorf("budgets (-want +got):\n%s", diff)
			}
		},
		"a pod whose labels leave the budget is woken": func(q budgetTest) {
			q.refused(1, 2)
			q.want("the same labels", q.Relabel(requestKey(1), webLabels))
			q.want("other labels", q.Relabel(requestKey(1), map[string]string{"app": "db"}), 1)
			q.want("1 allowed", q.Observe(testBudget("web", 1)), 2)
		},
		"a budget of another namespace does not matter": func(q budgetTest) {
			q.refused(1)
			other := testBudget("web", 5)
			other.Namespace = "other"
			q.want("another namespace", q.Observe(other))
		},
		"those behind are counted up to the limit": func(q budgetTest) {
			q.refused(1, 2, 3, 4)
			got := []int{q.Behind(requestKey(1), 2), q.Behind(requestKey(2), 2), q.Behind(requestKey(4), 2), q.Behind(requestKey(9), 2)}
			if diff := cmp.Diff([]int{0, 1, 2, 0}, got); diff != "" {
				q.t.Errorf("behind (-want +got):\n%s", diff)
			}
		},
	}
	for name, drive := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newBudgetTest(t, testBudget("web", 0))
			drive(q)
			// Nothing may be left behind.
			for n := range 10 {
				q.Forget(requestKey(n))
			}
			if len(q.places) != 0 {
				t.Errorf("%d places are left", len(q.places))
			}
			for _, budgets := range q.budgets {
				for name, b := range budgets {
					if len(b.waiting) != 0 || len(b.inFlight) != 0 {
						t.Errorf("budget %s still has %d waiting and %d in flight", name, len(b.waiting), len(b.inFlight))
					}
				}
			}
		})
	}
}
