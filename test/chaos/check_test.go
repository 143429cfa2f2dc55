package chaos

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	first, second = "first.example.com", "second.example.com"
	theRequest    = types.UID("request-1")
	deadline      = 8 * time.Second
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// pod is a ready pod of workload w0.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := builder.Pod("shop", name).UID(types.UID("uid-"+name)).Node("node-1").Label(builder.AppLabel, "w0").Ready().Obj()
	for _, c := range change {
		c(p)
	}
	return p
}

// letGo is what the eviction API notes on a pod.
func letGo(when time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: evictionReason, LastTransitionTime: metav1.NewTime(when.Truncate(time.Second)),
		})
	}
}

// dying is a pod whose deletion was asked for, with 30 seconds to end.
func dying(when time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(when.Truncate(time.Second).Add(30*time.Second))), new(int64(30))
	}
}

func guarded(p *corev1.Pod) { setLabel(p, v1alpha1.GuardLabel, v1alpha1.GuardClosed) }

func setLabel(p *corev1.Pod, key, value string) { p.Labels[key] = value }

// request is the state of the request for pod a.
func request(active, processed int, change ...func(*v1alpha1.EvictionRequest)) *v1alpha1.EvictionRequest {
	names := []string{first, second, v1alpha1.ImperativeEvictionInterceptor}
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "uid-a", UID: theRequest, CreationTimestamp: metav1.NewTime(start)}}
	for _, name := range names {
		er.Status.TargetInterceptors = append(er.Status.TargetInterceptors, v1alpha1.Interceptor{Name: name})
	}
	er.Status.ProcessedInterceptors = names[:processed]
	er.Status.ActiveInterceptors = names[processed : processed+active]
	for _, c := range change {
		c(er)
	}
	return er
}

func ended(kind string) func(*v1alpha1.EvictionRequest) {
	return func(er *v1alpha1.EvictionRequest) {
		er.Status.Conditions = append(er.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}
}

func finished(name string, when float64) Entry {
	return Entry{At: at(when), Deed: Finished, Request: theRequest, Interceptor: name}
}

func began(name string, when float64) Entry {
	return Entry{At: at(when), Told: at(when), Deed: Began, Request: theRequest, Interceptor: name}
}

// history is one in which pod a was evicted after ten seconds, both of its
// interceptors done.
func history(change ...func(*History)) *History {
	h := &History{
		Plan:     Plan{Mode: ModeFail, Workloads: []Workload{{Name: "w0", Kind: Intercepted, Replicas: 2, MaxUnavailable: -1, Interceptors: make([]Behaviour, 2)}}},
		Names:    map[string][]string{"w0": {first, second}},
		Deadline: deadline, Slack: 2 * grain,
		Pods: []PodSeen{
			{At: at(0), Pod: pod("a")}, {At: at(0), Pod: pod("b")},
			{At: at(10), Pod: pod("a", letGo(at(10)), dying(at(10)))},
			{At: at(10.1), Gone: true, Pod: pod("a", letGo(at(10)))},
		},
		Requests: []RequestSeen{
			{At: at(1), Request: request(1, 0)},
			{At: at(4), Request: request(1, 1)},
			{At: at(9), Request: request(1, 2)},
			{At: at(11), Request: request(0, 3, ended(v1alpha1.ConditionEvicted))},
		},
		Ledger: []Entry{began(first, 1), finished(first, 3), began(second, 5), finished(second, 8)},
	}
	for _, c := range change {
		c(h)
	}
	return h
}

func mode(m Mode) func(*History) { return func(h *History) { h.Plan.Mode = m } }

func away(h *History) { h.Away = []Interval{{at(2), at(12)}} }

func ledgerOf(entries ...Entry) func(*History) { return func(h *History) { h.Ledger = entries } }

func unasked(h *History) { h.Requests = nil }

// budgetOf gives the workload a budget.
func budgetOf(maxUnavailable int32) func(*History) {
	return func(h *History) { h.Plan.Workloads[0].MaxUnavailable = maxUnavailable }
}

// never stands for the promise that a run without violations breaks.
const never = "the run has no violations"

// breaks wants that this promise is the first that is broken.
func breaks(t *testing.T, h *History, want string) Verdict {
	t.Helper()
	v := Check(h)
	got := never
	if len(v.Violations) > 0 {
		got = v.Violations[0].Promise
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("broken promise (-want +got):\n%s\n%v", diff, v.Violations)
	}
	return v
}

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		history *History
		want    string // The promise that is broken.
		passed  int
		strayed int
		early   int
	}{
		"both interceptors are done":                             {history: history(), want: never},
		"the second one is still at work":                        {history: history(ledgerOf(began(first, 1), finished(first, 3), began(second, 5))), want: PromiseDone},
		"the second one finishes too late":                       {history: history(ledgerOf(finished(first, 3), began(second, 5), finished(second, 12))), want: PromiseDone},
		"the first one was silent for the whole deadline":        {history: history(ledgerOf(finished(second, 8))), want: never},
		"the first one was silent, but its heartbeat is recent":  {history: history(ledgerOf(began(first, 6), finished(second, 8))), want: PromiseDone},
		"a heartbeat from the future does not count":             {history: history(ledgerOf(Entry{At: at(1), Told: at(3600), Deed: Began, Request: theRequest, Interceptor: first}, finished(second, 8))), want: never},
		"another request's work does not count":                  {history: history(ledgerOf(Entry{At: at(3), Deed: Finished, Request: "other", Interceptor: first}, finished(second, 8), began(first, 6))), want: PromiseDone},
		"nobody was asked":                                       {history: history(unasked), want: PromiseDone},
		"nobody was asked, the webhook away, failurePolicy Fail": {history: history(unasked, away), want: PromiseDone},
		"nobody was asked, the webhook away, failurePolicy Ignore": {
			history: history(unasked, away, mode(ModeIgnore)), want: never, passed: 1,
		},
		"nobody was asked, the webhook there, failurePolicy Ignore": {history: history(unasked, mode(ModeIgnore)), want: PromiseDone},
		"the guard was closed, the webhook away, failurePolicy Ignore": {
			history: history(unasked, away, mode(ModeIgnore), func(h *History) { guarded(h.Pods[0].Pod) }), want: PromiseDone,
		},
		"a lie ended the turn of the first": {
			history: history(ledgerOf(began(first, 1), began(second, 5), finished(second, 8), Entry{At: at(4), Deed: Lied, Request: theRequest, Interceptor: second, Victim: first}), func(h *History) {
				h.Deadline = 20 * time.Second
			}), want: PromiseDone,
		},
		"a lie ended the turn of the first while the webhook was away": {
			history: history(away, ledgerOf(began(first, 1), began(second, 5), finished(second, 8), Entry{At: at(4), Deed: Lied, Request: theRequest, Interceptor: second, Victim: first}), func(h *History) {
				h.Deadline = 20 * time.Second
			}), want: PromiseDone,
		},
		"the end was missed, and the log has an eviction": {history: history(unasked, func(h *History) {
			h.Pods = []PodSeen{h.Pods[0], h.Pods[1], {At: at(10), Gone: true, Gap: true, Pod: pod("a")}}
			h.Calls = []Call{{At: at(9), Name: "a", Code: 201}}
		}), want: PromiseDone},
		"the end was missed, and the log has a deletion only": {history: history(unasked, func(h *History) {
			h.Pods = []PodSeen{h.Pods[0], h.Pods[1], {At: at(10), Gone: true, Gap: true, Pod: pod("a")}}
			h.Calls = []Call{{At: at(9), Name: "a", Code: 429}}
		}), want: never},
		"a call by name sent for the pod before, which was ending, hit it":             {history: history(unasked, after(deleting), callsByName(8)), want: never, strayed: 1},
		"a call by name sent for the pod before hit it, and a request came after that": {history: history(after(deleting), callsByName(8), ledgerOf(began(first, 9.5))), want: never, strayed: 1},
		"a call by name sent for the pod before, and another one let through": {history: history(unasked, after(deleting), callsByName(8), func(h *History) {
			h.Calls = append(h.Calls, Call{At: at(9.6), Name: "a", Code: 201})
		}), want: PromiseDone},
		"a call by name sent for the pod before, which was well, hit it": {history: history(unasked, after(), callsByName(8)), want: PromiseDone},
		"a call by name that was sent for the very pod":                  {history: history(unasked, after(deleting), callsByName(9.5)), want: PromiseDone},
		"a call came before the pod ran, which began to run under it":    {history: history(unasked, runsAt(9), callsByName(8)), want: never, early: 1},
		"a call came for the pod before, which was well":                 {history: history(runsAt(9), callsByName(6.5), ledgerOf(began(first, 9.5))), want: PromiseDone},
		"a call came before the pod ran, and a request after that":       {history: history(runsAt(9), callsByName(8), ledgerOf(began(first, 9.5))), want: never, early: 1},
		"a call came before the pod ran, and another one was let through after that": {history: history(runsAt(9), callsByName(8), ledgerOf(began(first, 9.5)), func(h *History) {
			h.Calls = append(h.Calls, Call{At: at(9.6), Name: "a", Code: 201})
		}), want: PromiseDone},
		"a call came before the pod ran, and another one died with the server after that": {history: history(runsAt(9), callsByName(8), ledgerOf(began(first, 9.5)), func(h *History) {
			h.Calls = append(h.Calls, Call{At: at(9.6), Name: "a"})
		}), want: PromiseDone},
		"a call came after the pod had begun to run": {history: history(unasked, runsAt(9), callsByName(9.5)), want: PromiseDone},
		"a call before the pod ran was refused": {history: history(unasked, runsAt(9), callsByName(8), func(h *History) {
			h.Calls[0].Code = 429
		}), want: PromiseDone},
		"a call before the pod ran was for another one": {history: history(unasked, runsAt(9), callsByName(8), func(h *History) {
			h.Calls[0].UID = "uid-other"
		}), want: PromiseDone},
		"an eviction was let go, and its deletion failed": {history: history(unasked, func(h *History) {
			h.Pods = []PodSeen{h.Pods[0], h.Pods[1], {At: at(10), Pod: pod("a", letGo(at(10)))}}
		}), want: never},
		"the observer was behind": {history: history(ledgerOf(began(first, 1), finished(first, 3), began(second, 7), finished(second, 12)), func(h *History) {
			h.Pods[2].At = at(14)
		}), want: PromiseDone},
		"somebody else deleted the pod": {history: history(unasked, func(h *History) {
			h.Pods = []PodSeen{h.Pods[0], h.Pods[1], {At: at(10), Gone: true, Pod: pod("a")}}
		}), want: never},
		"another request came within the second of the end": {history: history(func(h *History) {
			next := request(0, 0)
			next.UID, next.CreationTimestamp = "next", metav1.NewTime(at(10))
			h.Requests = append(h.Requests, RequestSeen{At: at(10.5), Request: next})
		}), want: never},
		"two are active at a time":                   {history: history(func(h *History) { h.Requests[1].Request = request(2, 1) }), want: PromiseOrder},
		"one was left out":                           {history: history(func(h *History) { h.Requests[1].Request.Status.ProcessedInterceptors = []string{second} }), want: PromiseOrder},
		"the plan is not the pod's":                  {history: history(func(h *History) { h.Names["w0"] = []string{first} }), want: PromiseOrder},
		"a final state is taken back":                {history: history(func(h *History) { h.Requests[2].Request = request(1, 2, ended(v1alpha1.ConditionCanceled)) }), want: PromiseOrder},
		"the budget wants as many as remain":         {history: history(budgetOf(1), late), want: never},
		"the budget wants more than remain":          {history: history(budgetOf(0), late), want: PromiseBudget},
		"somebody else deleted a pod a moment ago":   {history: history(budgetOf(1), late, lost("b")), want: never},
		"a request still runs":                       {history: history(func(h *History) { h.LeftRequests = []v1alpha1.EvictionRequest{*request(1, 1)} }), want: PromiseEnd},
		"the run does not come to rest":              {history: history(func(h *History) { h.Unsettled = "something moves" }), want: PromiseEnd},
		"a guard stays closed":                       {history: history(left(pod("b", guarded))), want: PromisePutBack},
		"a guard that is always closed is closed":    {history: history(mode(ModeAlways), left(pod("b", guarded))), want: never},
		"a guard that is always closed is open":      {history: history(mode(ModeAlways), left(pod("b"))), want: PromisePutBack},
		"a pod stays handed up":                      {history: history(left(pod("b", annotated(surge.HandedUpAnnotation)))), want: PromisePutBack},
		"a pod stays marked for the descheduler":     {history: history(left(pod("b", annotated(inProgressAnnotation)))), want: PromisePutBack},
		"a pod stays told of a maintenance":          {history: history(left(pod("b", told))), want: PromisePutBack},
		"a node stays in a maintenance":              {history: history(leftNode(v1alpha1.MaintenancesAnnotation, false)), want: PromisePutBack},
		"a node stays unschedulable":                 {history: history(leftNode("", true)), want: PromisePutBack},
		"somebody else has cordoned a node":          {history: history(leftNode("", true), drainedBy(Loop)), want: never},
		"a loop has cordoned another node":           {history: history(leftNode("", true), drainedBy(Native)), want: PromisePutBack},
		"what is being deleted needs no repair":      {history: history(left(pod("b", guarded, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at(20))) }))), want: never},
		"a pod that did not run yet was let through": {history: history(unasked, func(h *History) { h.Pods[2].Pod.Status.Phase = corev1.PodPending }), want: never},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := breaks(t, tc.history, tc.want)
			if diff := cmp.Diff([]int{tc.passed, tc.strayed, tc.early}, []int{v.Passed, v.Strayed, v.Starting}); diff != "" {
				t.Errorf("passed, strayed and starting (-want +got):\n%s", diff)
			}
		})
	}
}

// after makes pod a the successor, since second 9, of one that got into that state.
func after(state ...func(*corev1.Pod)) func(*History) {
	return func(h *History) {
		before := func(p *corev1.Pod) { p.UID = "uid-before" }
		h.Pods = []PodSeen{
			{At: at(0), Pod: pod("a", before)}, {At: at(7), Pod: pod("a", append(state, before)...)}, {At: at(8.5), Gone: true, Pod: pod("a", append(state, before)...)},
			{At: at(9), Pod: pod("a")}, {At: at(10), Pod: pod("a", letGo(at(10)), dying(at(10)))},
		}
	}
}

func deleting(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at(7))) }

// callsByName is a successful eviction.
func callsByName(when float64) func(*History) {
	return func(h *History) { h.Calls = []Call{{At: at(when), Name: "a", Code: 201}} }
}

// runsAt has pod a seen before it runs, and then as running since that second.
func runsAt(second float64) func(*History) {
	return func(h *History) {
		waiting := pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
		h.Pods = append([]PodSeen{{At: at(7), Pod: waiting}, {At: at(second), Pod: pod("a")}}, h.Pods[1:]...)
	}
}

// late moves the eviction away from the beginning, when budgets are not judged.
func late(h *History) {
	for i := range h.Pods[2:] {
		h.Pods[2+i].At = at(100)
	}
}

// lost deletes a pod just before the eviction.
func lost(name string) func(*History) {
	return func(h *History) {
		h.Pods = []PodSeen{h.Pods[0], h.Pods[1], {At: at(99), Gone: true, Pod: pod(name)}, h.Pods[2], h.Pods[3]}
	}
}

func left(pods ...*corev1.Pod) func(*History) {
	return func(h *History) {
		for _, p := range pods {
			h.LeftPods = append(h.LeftPods, *p)
		}
	}
}

func told(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: v1alpha1.PodEvacuationRequest, Status: corev1.ConditionTrue, Reason: v1alpha1.PodReasonNodeMaintenance,
	})
}

// leftNode adds a node as the maintenances have left it.
func leftNode(annotation string, unschedulable bool) func(*History) {
	return func(h *History) {
		node := corev1.Node{Spec: corev1.NodeSpec{Unschedulable: unschedulable}}
		if annotation != "" {
			node.Annotations = map[string]string{annotation: ""}
		}
		h.LeftNodes = append(h.LeftNodes, node)
	}
}

// drainedBy has the first node drained so, and the second one by a loop.
func drainedBy(kind DrainKind) func(*History) {
	return func(h *History) { h.Plan.Drains = []Drain{{Kind: kind}, {Kind: Loop, Node: 1}} }
}

func annotated(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: "true"} }
}
