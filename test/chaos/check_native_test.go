package chaos

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The native responders of pod a in the order of the API server: the second and the third have the
// same priority.
const (
	responderA  = "zone.example.com/a"
	responderB  = "acme.example.com/b"
	theEviction = types.UID("eviction-1")
	theManager  = "manager"
)

func nativeOf(name string, priority int32) lifecyclev1alpha1.TargetResponder {
	return lifecyclev1alpha1.TargetResponder{Name: name, Priority: new(priority)}
}

// stateLetters are those of eviction.
var stateLetters = map[rune]lifecyclev1alpha1.ResponderStateType{
	'-': nativeInactive, 'A': nativeActive, 'C': lifecyclev1alpha1.ResponderStateCompleted,
	'I': lifecyclev1alpha1.ResponderStateInterrupted, 'X': lifecyclev1alpha1.ResponderStateCanceled,
}

// eviction is a state of the Eviction of pod a: of its two responders, ours and the evictor.
func eviction(version, second int, states string, change ...func(*lifecyclev1alpha1.Eviction)) EvictionSeen {
	e := &lifecyclev1alpha1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-1-a", UID: theEviction, ResourceVersion: strconv.Itoa(version)}}
	e.Spec.Target.Pod = &lifecyclev1alpha1.EvictionPodReference{Name: "a", UID: "uid-a"}
	plan := []lifecyclev1alpha1.TargetResponder{nativeOf(responderA, 20000), nativeOf(responderB, 1000), nativeOf(v1alpha1.NativeResponder, 1000), nativeOf(nativeEvictor, 100)}
	for i, letter := range states {
		plan[i].State = stateLetters[letter]
		report := lifecyclev1alpha1.ResponderStatus{Name: plan[i].Name}
		if letter != '-' {
			report.StartTime = new(metav1.NewTime(at(float64(second))))
		}
		e.Status.TargetResponders = append(e.Status.TargetResponders, plan[i])
		e.Status.Responders = append(e.Status.Responders, report)
	}
	slices.Reverse(e.Status.TargetResponders) // The order in the list means nothing.
	for _, c := range change {
		c(e)
	}
	return EvictionSeen{At: at(float64(second)), Eviction: e}
}

// overNatively sets both conditions.
func overNatively(failed metav1.ConditionStatus, failedReason string, evicted metav1.ConditionStatus, evictedReason string) []metav1.Condition {
	return []metav1.Condition{
		{Type: nativeFailed, Status: failed, Reason: failedReason, LastTransitionTime: metav1.NewTime(at(11))},
		{Type: nativeEvicted, Status: evicted, Reason: evictedReason, LastTransitionTime: metav1.NewTime(at(11))},
	}
}

var (
	evictedNatively  = overNatively(metav1.ConditionFalse, "Succeeded", metav1.ConditionTrue, "PodDeleted")
	canceledNatively = overNatively(metav1.ConditionTrue, "CanceledDueToNoRequesters", metav1.ConditionFalse, "EvictionFailed")
	runsNatively     = overNatively(metav1.ConditionFalse, "AwaitingEviction", metav1.ConditionFalse, "AwaitingEviction")
)

func saying(conditions []metav1.Condition) func(*lifecyclev1alpha1.Eviction) {
	return func(e *lifecyclev1alpha1.Eviction) { e.Status.Conditions = conditions }
}

// named makes it another one.
func named(name string) func(*lifecyclev1alpha1.Eviction) {
	return func(e *lifecyclev1alpha1.Eviction) { e.Name, e.UID = name, types.UID(name) }
}

// wish is a state of the native request for pod a.
func wish(version, second int, intent lifecyclev1alpha1.EvictionRequestIntent, conditions []metav1.Condition) WishSeen {
	w := &lifecyclev1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "w", UID: "wish", ResourceVersion: strconv.Itoa(version), Generation: 1}}
	w.Spec.Target.Pod = &lifecyclev1alpha1.EvictionRequestPodReference{Name: "a", UID: "uid-a"}
	w.Spec.Intent = intent
	w.Status.Conditions = conditions
	w.Status.ObservedGeneration = new(int64(1))
	return WishSeen{At: at(float64(second)), Wish: w}
}

const (
	wants    = lifecyclev1alpha1.EvictionRequestIntentEviction
	withdraw = lifecyclev1alpha1.EvictionRequestIntentWithdrawn
)

func versioned(version string) func(*v1alpha1.EvictionRequest) {
	return func(er *v1alpha1.EvictionRequest) { er.ResourceVersion = version }
}

// oursFor makes the request of pod a one of the Eviction, with one interceptor besides.
func oursFor(active, processed int, change ...func(*v1alpha1.EvictionRequest)) *v1alpha1.EvictionRequest {
	return request(active, processed, append(change, func(er *v1alpha1.EvictionRequest) {
		er.Spec.Requesters = []v1alpha1.Requester{{Name: v1alpha1.NativeInterceptor}}
		plan := []string{v1alpha1.NativeInterceptor, first, v1alpha1.ImperativeEvictionInterceptor}
		er.Status.TargetInterceptors = nil
		for _, name := range plan {
			er.Status.TargetInterceptors = append(er.Status.TargetInterceptors, v1alpha1.Interceptor{Name: name})
		}
		er.Status.ProcessedInterceptors, er.Status.ActiveInterceptors = plan[:processed], plan[processed:processed+active]
	})...)
}

func responded(name string, when float64) Entry {
	return Entry{At: at(when), Deed: Finished, Request: theEviction, Pod: "uid-a", Interceptor: name}
}

// evictedByUs is the call of the evictor.
func evictedByUs(h *History) {
	h.Calls = append(h.Calls, Call{At: at(10), User: theManager, Name: "a", UID: "uid-a", Code: http.StatusCreated})
}

// natively is a history in which pod a was evicted after ten seconds, when its two native
// responders and its interceptor were done.
func natively(change ...func(*History)) *History {
	version := func(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = v } }
	h := history()
	h.Names["w0"] = []string{first}
	h.Manager, h.Plan.Serves = theManager, true
	h.Responders = map[string][]lifecyclev1alpha1.TargetResponder{"w0": {nativeOf(responderB, 1000), nativeOf(responderA, 20000)}}
	h.Pods = []PodSeen{
		{At: at(0), Pod: pod("a", version("10"))},
		{At: at(10), Pod: pod("a", version("100"), letGo(at(10)), dying(at(10)))},
		{At: at(10.1), Gone: true, Pod: pod("a", version("101"), letGo(at(10)))},
	}
	h.Wishes = []WishSeen{wish(20, 1, wants, runsNatively), wish(120, 12, wants, evictedNatively)}
	h.Evictions = []EvictionSeen{
		eviction(30, 1, ""), eviction(31, 1, "A---"), eviction(40, 3, "CA--"), eviction(50, 5, "CCA-"), eviction(90, 9, "CCCA"),
		eviction(110, 11, "CCCC", saying(evictedNatively)),
	}
	h.Requests = []RequestSeen{
		{At: at(5), Request: oursFor(1, 0, versioned("51"))}, {At: at(6), Request: oursFor(1, 1, versioned("60"))},
		{At: at(8), Request: oursFor(1, 2, versioned("80"))}, {At: at(11), Request: oursFor(0, 3, versioned("111"), ended(v1alpha1.ConditionEvicted))},
	}
	h.Ledger = []Entry{responded(responderA, 2.5), responded(responderB, 4.5), began(first, 6), finished(first, 7.5)}
	evictedByUs(h)
	for _, c := range change {
		c(h)
	}
	return h
}

func without(interceptor string) func(*History) {
	return func(h *History) {
		h.Ledger = slices.DeleteFunc(h.Ledger, func(e Entry) bool { return e.Interceptor == interceptor })
	}
}

// instead replaces the states of the Eviction from the i-th on.
func instead(i int, states ...EvictionSeen) func(*History) {
	return func(h *History) { h.Evictions = append(h.Evictions[:i:i], states...) }
}

// oursLater has our interceptor begin after the end of the pod.
func oursLater(h *History) {
	for i := range h.Requests {
		h.Requests[i].Request.ResourceVersion = strconv.Itoa(200 + i)
	}
}

// unheard is a state in which the times of the responders are half an hour old.
func unheard(e *lifecyclev1alpha1.Eviction) {
	for i := range e.Status.Responders {
		if start := e.Status.Responders[i].StartTime; start != nil {
			start.Time = start.Add(-30 * time.Minute)
		}
	}
}

// native is a write of the managers to lifecycle.k8s.io with that answer.
func native(code int) func(*History) {
	return func(h *History) {
		h.Writes = append(h.Writes, Write{At: at(3), Of: "native evictions/status pod-1-a", Code: code, Native: true})
	}
}

// leftNatively is what is left in the end.
func leftNatively(e EvictionSeen, wishes ...WishSeen) func(*History) {
	return func(h *History) {
		h.LeftEvictions = append(h.LeftEvictions, *e.Eviction)
		for _, w := range wishes {
			h.LeftWishes = append(h.LeftWishes, *w.Wish)
		}
	}
}

func TestCheckOfNativeEvictions(t *testing.T) {
	cases := map[string]struct {
		history *History
		want    []string // The promises that are broken.
	}{
		"everybody had his turn": {natively(), nil},

		"a responder is still at work, and the evictor acts":         {natively(without(responderB)), []string{PromiseNativeDone}},
		"a responder never had its turn":                             {natively(instead(2, eviction(50, 5, "C-A-"), eviction(90, 9, "C-CA"))), []string{PromiseNativeDone, PromiseNativeTurns}},
		"there is no Eviction at all":                                {natively(instead(0)), []string{PromiseNativeDone}},
		"a responder was silent for the whole deadline":              {natively(without(responderB), instead(3, eviction(45, 4, "CA--", unheard), eviction(50, 5, "CIA-"), eviction(90, 9, "CICA"))), nil},
		"a responder was passed over, and it was not silent so long": {natively(instead(3, eviction(50, 5, "CIA-"), eviction(90, 9, "CICA"))), []string{PromiseNativeTurns}},
		"what a responder did for another Eviction does not count": {natively(func(h *History) {
			h.Ledger[1].Request = "other"
		}), []string{PromiseNativeDone}},
		"the pod goes in the turn of a responder":     {natively(instead(3), oursLater), []string{PromiseNativeDone}},
		"the pod goes in our turn":                    {natively(instead(4)), []string{PromiseNativeDone}},
		"the pod goes before its Eviction has a plan": {natively(instead(1), without(responderB)), []string{PromiseNativeDone}},
		"an Eviction begins while the evictor's call is on its way": {natively(func(h *History) {
			h.Evictions = append(h.Evictions[:5], eviction(95, 9, "CCCX", saying(canceledNatively)), eviction(96, 9, "", named("pod-2-a")))
		}), nil},
		"somebody else has deleted the pod in the turn of a responder": {natively(instead(3), oursLater, func(h *History) {
			h.Calls = nil
			h.Pods[1].Pod.Status.Conditions, h.Pods[2].Pod.Status.Conditions = nil, nil
		}), nil},
		"an outage has let a call pass": {natively(instead(0), away, mode(ModeIgnore), func(h *History) {
			h.Requests, h.Wishes, h.Calls[0].User = nil, nil, looper
		}), nil},
		"nobody asked, and the webhook was there": {natively(instead(0), mode(ModeIgnore), func(h *History) {
			h.Requests, h.Wishes, h.Calls[0].User = nil, nil, looper
		}), []string{PromiseDone, PromiseNativeDone}},

		"two responders have a turn":         {natively(oursLater, instead(2, eviction(40, 3, "AA--"))), []string{PromiseNativeDone, PromiseNativeTurns}},
		"the order is not that of priority":  {natively(instead(1, eviction(31, 1, "-A--"), eviction(40, 3, "AC--"), eviction(50, 5, "CCA-"), eviction(90, 9, "CCCA"))), []string{PromiseNativeTurns}},
		"a responder has a turn once more":   {natively(instead(4, eviction(60, 6, "CA--"), eviction(65, 6, "CCA-"), eviction(90, 9, "CCCA"))), []string{PromiseNativeAlone, PromiseNativeTurns}},
		"the responders are not the pod's":   {natively(func(h *History) { h.Responders["w0"][0].Priority = new(int32(3000)) }), []string{PromiseNativeTurns}},
		"ours have no place in the Eviction": {natively(func(h *History) { h.Names["w0"] = nil }), []string{PromiseNativeTurns, PromiseOrder}},

		"our interceptor begins in the turn of a responder": {natively(func(h *History) { h.Requests[1].Request.ResourceVersion = "45" }, func(h *History) {
			h.Requests[0].Request.ResourceVersion = "44"
		}), []string{PromiseNativeAlone}},
		"our interceptor begins in the turn of a responder, and states are missing": {natively(func(h *History) {
			h.Requests[0].Request.ResourceVersion, h.Requests[1].Request.ResourceVersion, h.LostThread = "44", "45", true
		}), nil},
		"native.drawbridge.dev was not first": {natively(func(h *History) {
			for i := range h.Requests {
				h.Requests[i].Request.Status.TargetInterceptors = h.Requests[i].Request.Status.TargetInterceptors[1:]
			}
		}), []string{PromiseOrder}},

		"two Evictions run at a time": {natively(func(h *History) {
			h.Evictions = append(h.Evictions, eviction(95, 9, "", named("pod-2-a")))
		}), []string{PromiseNativeOne}},
		"a second Eviction begins when the first has failed": {natively(instead(2,
			eviction(36, 2, "X---", saying(canceledNatively)),
			eviction(40, 3, "A---", named("pod-2-a")), eviction(41, 4, "CA--", named("pod-2-a")), eviction(50, 5, "CCA-", named("pod-2-a")), eviction(90, 9, "CCCA", named("pod-2-a"))), func(h *History) {
			h.Ledger[0].Request, h.Ledger[0].At, h.Ledger[1].Request = "pod-2-a", at(3.5), "pod-2-a"
		}), nil},

		"an Eviction does not end":             {natively(leftNatively(eviction(90, 9, "CCCA"))), []string{PromiseNativeEnd}},
		"an Eviction has ended, and says so":   {natively(leftNatively(eviction(110, 11, "CCCC", saying(evictedNatively)), wish(120, 12, wants, evictedNatively))), nil},
		"a request does not say how it ended":  {natively(leftNatively(eviction(110, 11, "CCCC", saying(evictedNatively)), wish(120, 12, wants, runsNatively))), []string{PromiseNativeEnd}},
		"a request says nothing":               {natively(leftNatively(eviction(110, 11, "CCCC", saying(evictedNatively)), wish(120, 12, wants, nil))), []string{PromiseNativeEnd}},
		"a request is not valid, and says so":  {natively(leftNatively(eviction(110, 11, "CCCC", saying(canceledNatively)), wish(120, 12, wants, overNatively(metav1.ConditionTrue, nativeInvalid, metav1.ConditionFalse, "EvictionFailed")))), nil},
		"a withdrawn request says that it was": {natively(leftNatively(eviction(110, 11, "XX--", saying(canceledNatively)), wish(120, 12, withdraw, canceledNatively))), nil},
		"a request was edited, and nobody has seen it": {natively(leftNatively(eviction(110, 11, "XX--", saying(canceledNatively)), wish(120, 12, withdraw, canceledNatively)), func(h *History) {
			h.LeftWishes[0].Generation = 2
		}), []string{PromiseNativeEnd}},

		"the API server refuses a native write": {natively(native(http.StatusUnprocessableEntity)), []string{PromiseNativeRules}},
		"a native write meets a newer version":  {natively(native(http.StatusConflict)), nil},
		"an API server that has just begun knows no permissions": {natively(native(http.StatusForbidden), native(http.StatusOK), func(h *History) {
			h.Writes[0].Unauthorized = true
		}), nil},
		"the managers have no permission": {natively(native(http.StatusForbidden), func(h *History) {
			h.Writes[0].Unauthorized = true
		}), []string{PromiseNativeRules}},
		"a policy engine refuses native writes":                {natively(native(http.StatusUnprocessableEntity), refusing(RefusedEvictionStatus, 2, 6)), nil},
		"a policy engine refuses other writes":                 {natively(native(http.StatusUnprocessableEntity), refusing(RefusedPods, 2, 6)), []string{PromiseNativeRules}},
		"a policy engine has refused native writes long since": {natively(native(http.StatusForbidden), refusing(RefusedEvictionStatus, -9, -6)), []string{PromiseNativeRules}},

		"the evictor acts although everybody has withdrawn": {natively(withdrawnAt(92, 2)), []string{PromiseNativeNobody}},
		"the evictor acts while somebody withdraws":         {natively(withdrawnAt(92, 9)), nil},
		"the evictor acts for somebody else": {natively(withdrawnAt(92, 2), func(h *History) {
			for i := range h.Requests {
				h.Requests[i].Request.Spec.Requesters = append(h.Requests[i].Request.Spec.Requesters, v1alpha1.Requester{Name: "drain.example.com"})
			}
		}), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := Check(tc.history)
			var got []string
			for _, violation := range v.Violations {
				if !slices.Contains(got, violation.Promise) {
					got = append(got, violation.Promise)
				}
			}
			less := func(a, b string) bool { return a < b }
			if diff := cmp.Diff(tc.want, got, cmpopts.SortSlices(less), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("broken promises (-want +got):\n%s\n%v", diff, v.Violations)
			}
		})
	}
}

// withdrawnAt has the native request withdrawn, and the Eviction canceled, at that second.
func withdrawnAt(version, second int) func(*History) {
	return func(h *History) {
		h.Wishes[1] = wish(version, second, withdraw, canceledNatively)
		h.Evictions[5] = eviction(version+1, second, "CCCX", saying(canceledNatively))
	}
}

func TestTurnsOfNativeRespondersAreCounted(t *testing.T) {
	v := Check(natively(without(responderB), instead(3, eviction(45, 4, "CA--", unheard), eviction(50, 5, "CIA-"), eviction(90, 9, "CICA"),
		eviction(95, 9, "X---", named("pod-2-b"))), native(http.StatusOK)))
	got := []int{v.Wishes, v.Evictions, v.NativeWrites, v.Responded, v.NativeFinished, v.NativeTimedOut, v.NativeCanceled, v.Nested}
	if diff := cmp.Diff([]int{1, 2, 1, 1, 1, 1, 1, 1}, got); diff != "" {
		t.Errorf("requests, Evictions, writes, pods, finished, timed out, canceled and nested turns (-want +got):\n%s", diff)
	}
}

// A pod that comes back to a node that everybody drains is another one each time.
func TestWritesOfPodsOfOneNameAreCountedByPod(t *testing.T) {
	h := history()
	for i := range 3 {
		uid := types.UID(strconv.Itoa(i))
		h.Pods = append(h.Pods, PodSeen{At: at(float64(20 * i)), Pod: pod("again", func(p *corev1.Pod) { p.UID = uid })})
		for range maxWrites {
			h.Writes = append(h.Writes, Write{At: at(float64(20*i + 1)), Of: "pods again", Code: http.StatusOK})
		}
	}
	if v := breaks(t, h, never); v.Busiest != maxWrites {
		t.Errorf("most writes of a pod: %d, want %d", v.Busiest, maxWrites)
	}
	h.Writes = append(h.Writes, h.Writes[0])
	breaks(t, h, PromisePace)
}
