package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// finaleFrom is one that ended well, in which pod a was evicted.
func finaleFrom(from float64) func(*History) {
	return func(h *History) {
		h.Finale = &Finale{Node: "node-1", From: at(from), To: at(20), Ended: true}
		guarded(h.Pods[0].Pod)
		for _, seen := range h.Requests {
			for _, name := range []string{first, second} {
				seen.Request.Status.Interceptors = append(seen.Request.Status.Interceptors, v1alpha1.InterceptorStatus{Name: name, CompletionTime: new(metav1.NewTime(at(9)))})
			}
		}
		h.Budgets = []BudgetSeen{{At: at(0), Budget: guardBudget()}}
	}
}

func guardBudget(change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.GuardBudgetName, Generation: 1}}
	budget.Status.ObservedGeneration = 1
	for _, c := range change {
		c(budget)
	}
	return budget
}

func attempt1(kind TroubleKind, accepted bool) func(*History) {
	return func(h *History) { h.Attempts = append(h.Attempts, Attempt{At: at(2), Kind: kind, Accepted: accepted}) }
}

// writtenBy notes on the second state of the request who has written fields of the status.
func writtenBy(manager, fields string) func(*History) {
	return func(h *History) {
		h.Requests[1].Request.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: manager, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":` + fields + `}`),
		}}
	}
}

// writes has so many writes of one object in so many seconds.
func writes(n int, seconds float64) func(*History) {
	return func(h *History) {
		for i := range n {
			h.Writes = append(h.Writes, Write{At: at(seconds * float64(i) / float64(n)), Of: "pods a"})
		}
	}
}

// templatePods has so many pods of the Deployment with the guard's label.
func templatePods(n int, change ...func(*corev1.Pod)) func(*History) {
	return func(h *History) {
		for i := range n {
			of := append([]func(*corev1.Pod){func(p *corev1.Pod) { p.Labels[appLabel] = templateApp }}, change...)
			h.Pods = append(h.Pods, PodSeen{At: at(1), Pod: pod(fmt.Sprint("t", i), of...)})
		}
	}
}

// again has another pod of the name of a evicted.
func again(when float64) func(*History) {
	other := func(p *corev1.Pod) { p.UID = "uid-other" }
	return func(h *History) {
		h.Plan.Workloads[0].Interceptors, h.Names = nil, nil // They would be asked.
		h.Requests = nil
		h.Pods = append(h.Pods, PodSeen{At: at(when - 1), Pod: pod("a", other)}, PodSeen{At: at(when), Pod: pod("a", other, letGo(at(when)), dying(at(when)))})
	}
}

func habit(first Habit) func(*History) {
	return func(h *History) { h.Plan.Workloads[0].Interceptors[0].Habit = first }
}

func unguarded(h *History) { delete(h.Pods[0].Pod.Labels, v1alpha1.GuardLabel) }

func guardedBy(change func(*policyv1.PodDisruptionBudget)) func(*History) {
	return func(h *History) { h.Budgets = []BudgetSeen{{At: at(0), Budget: guardBudget(change)}} }
}

// heldRequest is left, deleted and held by somebody.
func heldRequest(h *History) {
	er := request(1, 1)
	er.DeletionTimestamp = new(metav1.NewTime(at(5)))
	h.LeftRequests = []v1alpha1.EvictionRequest{*er}
}

func asked(grace *int64) func(*History) {
	return func(h *History) {
		h.Requests[0].Request.Spec.Requesters = []v1alpha1.Requester{{Name: "legacy.example.com", GracePeriodSeconds: grace}}
	}
}

func TestCheckOfTroubles(t *testing.T) {
	evicted := `{"f:conditions":{"k:{\"type\":\"Evicted\"}":{".":{}}}}`
	cases := map[string]struct {
		history *History
		want    string
	}{
		"nothing that was forged is taken": {history: history(attempt1(ForgeOutcome, false), attempt1(PostReview, false)), want: never},
		"a final condition is taken":       {history: history(attempt1(ForgeOutcome, true)), want: PromiseForged},
		"a plan is taken":                  {history: history(attempt1(ForgePlan, true)), want: PromiseForged},
		"a foreign report is taken":        {history: history(attempt1(ForgeReport, true)), want: PromiseForged},
		"an interceptor has completed for another one": {history: history(func(h *History) {
			h.Ledger = append(h.Ledger, Entry{At: at(4), Deed: Lied, Request: theRequest, Interceptor: second, Victim: first})
		}), want: PromiseForged},
		"a made-up review is decided on":                      {history: history(attempt1(PostReview, true)), want: PromiseForged},
		"a padded eviction is let through, as any other":      {history: history(attempt1(PadEviction, true)), want: never},
		"a budget on the guard's label may be there":          {history: history(attempt1(ForeignBudget, true)), want: never},
		"the manager has written a final condition":           {history: history(writtenBy(statusManager, evicted)), want: never},
		"somebody else has written a final condition":         {history: history(writtenBy("kubectl", evicted)), want: PromiseForged},
		"somebody else has written the turn":                  {history: history(writtenBy("kubectl", `{"f:activeInterceptors":{}}`)), want: PromiseForged},
		"somebody else has written a condition of his own":    {history: history(writtenBy("kubectl", `{"f:conditions":{"k:{\"type\":\"Seen\"}":{".":{}}}}`)), want: never},
		"a request has the grace period of a made-up review":  {history: history(asked(new(int64(forgedGrace)))), want: PromiseForged},
		"a request has another grace period":                  {history: history(asked(new(int64(30)))), want: never},
		"an object is written now and then":                   {history: history(writes(maxWrites*3, 200)), want: never},
		"an object is written all the time":                   {history: history(writes(maxWrites*3, 100)), want: PromisePace},
		"a Deployment with the guard's label has its pod":     {history: history(templatePods(1)), want: never},
		"a Deployment with the guard's label makes many pods": {history: history(templatePods(maxReplacements + 1)), want: PromisePace},
		"it makes many because they are evicted":              {history: history(templatePods(maxReplacements+1, letGo(at(1)), dying(at(1)))), want: never},

		"the finale ends well": {history: history(finaleFrom(0)), want: never},
		"the finale does not end": {history: history(finaleFrom(0), func(h *History) {
			h.Finale.Ended = false
		}), want: PromiseDrain},
		"the finale evicts two pods of a name":                      {history: history(again(15), finaleFrom(0)), want: PromiseDrain},
		"the finale evicts a pod of a name that was evicted before": {history: history(again(15), finaleFrom(12)), want: never},
		"an interceptor that works was passed over in the finale":   {history: history(finaleFrom(0), ledgerOf(began(first, -9), finished(second, 8))), want: PromiseWork},
		"an interceptor has finished, and was passed over in the finale": {history: history(finaleFrom(0), func(h *History) {
			h.Requests[3].Request.Status.Interceptors[0].CompletionTime = nil
		}), want: PromiseWork},
		"an interceptor that is silent was passed over in the finale":  {history: history(finaleFrom(0), habit(Silent), ledgerOf(finished(second, 8))), want: never},
		"an interceptor that works was passed over before the finale":  {history: history(finaleFrom(2), ledgerOf(began(first, -9), finished(second, 8))), want: never},
		"a guard is open that is always to be closed":                  {history: history(func(h *History) { h.Unguarded = "pod a" }), want: PromiseGuard},
		"the guard is open while interceptors work":                    {history: history(finaleFrom(0), unguarded), want: PromiseGuard},
		"the guard is open, and there is to be none":                   {history: history(finaleFrom(0), unguarded, mode(ModeNoGuard)), want: never},
		"the guard is open, and the pod has a budget of its own":       {history: history(finaleFrom(0), unguarded, budgetOf(1)), want: never},
		"the guard is open, and the interceptors are done in a moment": {history: history(finaleFrom(0), unguarded, ledgerOf(finished(first, 2), finished(second, 3))), want: never},
		"the guard is closed and its budget is not there":              {history: history(finaleFrom(0), func(h *History) { h.Budgets = nil }), want: PromiseGuard},
		"the guard is closed and its budget was deleted": {history: history(finaleFrom(0), func(h *History) {
			h.Budgets = append(h.Budgets, BudgetSeen{At: at(1), Gone: true, Budget: guardBudget()})
		}), want: PromiseGuard},
		"the guard is closed and its budget is not in force":            {history: history(finaleFrom(0), guardedBy(func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 })), want: PromiseGuard},
		"the guard is closed and its budget allows something":           {history: history(finaleFrom(0), guardedBy(func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 1 })), want: PromiseGuard},
		"a request is held, and its pod has ended":                      {history: history(heldRequest), want: PromiseEnd},
		"a request is held, and its pod is there":                       {history: history(heldRequest, left(pod("a"))), want: never},
		"a request is held, its pod has ended, and that is noted in it": {history: history(heldRequest, func(h *History) { ended(v1alpha1.ConditionEvicted)(&h.LeftRequests[0]) }), want: never},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			breaks(t, tc.history, tc.want)
		})
	}
}

func TestMostInAMinuteCountsAnyMinute(t *testing.T) {
	var times []time.Time
	for _, seconds := range []float64{130, 0, 59, 61, 100, 118} { // In any order.
		times = append(times, at(seconds))
	}
	if diff := cmp.Diff(4, mostInAMinute(times)); diff != "" {
		t.Errorf("most within a minute (-want +got):\n%s", diff)
	}
}
