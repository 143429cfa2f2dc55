package chaos

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Violation of a promise.
type Violation struct {
	// Promise that was broken, one of the constants below.
	Promise string
	// About is the pod or the request.
	About string
	What  string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Promise, v.About, v.What) }

// The promises.
const (
	PromiseDone    = "no intercepted pod ends before its interceptors are done or have timed out, or a deadline has come"
	PromiseNoWay   = "no request is canceled that is past the point of no return"
	PromiseOrder   = "one interceptor at a time, in the order planned, and a final state stays"
	PromiseBudget  = "no eviction breaks a budget"
	PromiseEnd     = "every request ends"
	PromisePutBack = "labels, guards and pods that were handed up are put back"
	PromiseForged  = "nobody but the manager decides, and nobody reports for another one"
	PromisePace    = "nobody writes the same again and again"
	PromiseDrain   = "a drain that nothing holds up ends, and evicts each pod once"
	PromiseWork    = "an interceptor that works is not passed over"
	PromiseGuard   = "a pod is guarded while its interceptors work"
	PromiseZones   = "an EvictionBudget disrupts one zone at a time"
	PromiseConsent = "a pod is deleted in spite of its budget only with consent, in its time, and one at a time"
	PromiseWaves   = "a wave begins on a node when the pods of the waves before it are gone"
)

// Verdict on a run.
type Verdict struct {
	Violations []Violation
	// Evicted are the pods that ended by an eviction, Intercepted those of them that
	// had interceptors.
	Evicted, Intercepted int
	// TimedOut are the turns that ended by silence, CutOff those that a deadline ended or
	// left out, Finished those that ended well.
	TimedOut, CutOff, Finished int
	// WentOn are the requests that went on although nobody wanted them.
	WentOn int
	// Passed are intercepted pods that went during an outage under failurePolicy
	// Ignore without a guard, as documented.
	Passed int
	// Strayed are pods that a call by name hit which was sent for the pod before them,
	// when that was ending already: no webhook can tie such a call to a pod.
	Strayed int
	// Starting are pods that did not run yet when a call for them came, so that nobody
	// needed to be asked, and that did when the eviction API came to them.
	Starting int
	// Zoned are the evictions of ready pods behind an EvictionBudget. Unasked are those of
	// which it could know nothing: they passed an outage, strayed, were let through before
	// the pod ran, or the budget was silent for the whole deadline.
	Zoned, Unasked int
	// Deleted are the pods that were deleted in spite of their budget.
	Deleted int
	// Waited are the requests of maintenances for pods that have waited for other pods to go.
	Waited int
	// Requests is how many there were, Gaps how many times the observer lost the
	// thread and took it up with the API server's log.
	Requests, Gaps int
	// Attempts of those who make trouble, and Taken those that were accepted.
	Attempts, Taken int
	// Finales are the runs that were drained once more in the end.
	Finales int
	// Busiest is how often the managers have written the same object within a minute, at most.
	Busiest int
	// Refused are the writes of the managers that a policy engine has refused, and
	// MostRefused those of one object within a minute, at most.
	Refused, MostRefused int
	// Wishes and Evictions are the objects of lifecycle.k8s.io that there were, and NativeWrites
	// the writes of the managers to them.
	Wishes, Evictions, NativeWrites int
	// Responded are the pods with native responders that ended by an eviction, NativeUnasked those
	// of them for which there was no time to ask, because of a deadline or a refusal.
	Responded, NativeUnasked int
	// NativeFinished, NativeTimedOut and NativeCanceled are the turns of native responders that
	// ended well, by silence, or because nobody wanted the eviction any more. Nested are the turns
	// of all our interceptors together in an Eviction that ended well.
	NativeFinished, NativeTimedOut, NativeCanceled, Nested int
}

// Check judges a run. It is pure.
func Check(h *History) Verdict {
	c := &checker{History: h, requests: map[types.UID][]RequestSeen{}}
	for _, seen := range h.Requests {
		if seen.Request != nil {
			c.requests[seen.Request.UID] = append(c.requests[seen.Request.UID], seen)
		}
	}
	c.Verdict.Requests = len(c.requests)
	c.checkPods()
	c.checkZones()
	c.checkSingletons()
	c.checkWaves()
	c.checkRequests()
	c.checkNative()
	c.checkForged()
	c.checkPace()
	c.checkFinale()
	c.checkEnd()
	return c.Verdict
}

type checker struct {
	*History
	Verdict
	requests map[types.UID][]RequestSeen
}

func (c *checker) violatedf(promise, about, format string, args ...any) {
	c.Violations = append(c.Violations, Violation{promise, about, fmt.Sprintf(format, args...)})
}

// grain of the times in objects.
const grain = time.Second

// evictionReason is set by the eviction API on a pod it has let go, before it deletes it
// (kubernetes: pkg/registry/core/pod/storage/eviction.go, addConditionAndDeletePod).
const evictionReason = "EvictionByEvictionAPI"

// admitted is when the eviction API deleted the pod, and never earlier than that. The
// note alone does not say so: the deletion after it fails if the pod has changed.
func admitted(seen PodSeen) (time.Time, bool) {
	if seen.Pod.DeletionTimestamp == nil && !seen.Gone {
		return time.Time{}, false
	}
	for _, condition := range seen.Pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue && condition.Reason == evictionReason {
			return deleted(seen), true
		}
	}
	return time.Time{}, false
}

// deleted is when the deletion of a pod was asked for, and never earlier than that.
func deleted(seen PodSeen) time.Time {
	pod := seen.Pod
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return seen.At
	}
	latest := pod.DeletionTimestamp.Add(grain - time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second)
	if latest.Before(seen.At) {
		return latest
	}
	return seen.At
}

// checkPods goes through what was seen of the pods in the order in which it happened.
func (c *checker) checkPods() {
	now := map[types.UID]PodSeen{}
	judged := map[types.UID]bool{}
	lastGap := time.Time{}
	disturbed := map[string]time.Time{} // By workload: when a pod of it went otherwise.
	for _, seen := range c.Pods {
		before, known := now[seen.Pod.UID]
		at, evicted := admitted(seen)
		if seen.Gap {
			lastGap = seen.At
			c.Gaps++
		}
		if !evicted && seen.Gone && seen.Gap && known {
			at, evicted = c.missed(before, seen)
		}
		// The note of an eviction that failed may still be there.
		evicted = evicted && !c.isDeleted(seen.Pod)
		app := seen.Pod.Labels[appLabel]
		switch {
		case evicted && !judged[seen.Pod.UID]:
			judged[seen.Pod.UID] = true
			c.Evicted++
			c.judge(seen.Pod, before.Pod, at)
			c.judgeNative(seen.Pod, before.Pod, at)
			if known && isReady(before.Pod) && seen.At.Sub(lastGap) > disturbance && seen.At.Sub(disturbed[app]) > disturbance {
				c.judgeBudget(seen, now, judged)
			}
		case !evicted && known && isReady(before.Pod) && (seen.Gone || !isReady(seen.Pod)):
			disturbed[app] = seen.At
		}
		if seen.Gone {
			delete(now, seen.Pod.UID)
		} else {
			now[seen.Pod.UID] = seen
		}
	}
}

// disturbance is for how long the status of a budget may not know of a pod that was
// deleted by somebody else: the disruption controller may be paused meanwhile.
const disturbance = 15 * time.Second

// missed finds the eviction of a pod whose end the observer missed.
func (c *checker) missed(before, after PodSeen) (time.Time, bool) {
	for _, call := range c.Calls {
		if call.Name == before.Pod.Name && !call.At.Before(before.At.Add(-grain)) && !call.At.After(after.At) &&
			(call.UID == "" || call.UID == before.Pod.UID) && (call.Code == 0 || call.Code/100 == 2) {
			return after.At, true // The call may have taken its time.
		}
	}
	return time.Time{}, false
}

// judge is the first promise: an eviction was admitted at that time, or before.
func (c *checker) judge(pod, before *corev1.Pod, at time.Time) {
	w := c.workload(pod)
	if w == nil || len(c.Names[w.Name]) == 0 {
		return
	}
	c.Intercepted++
	if unscheduled(pod) || pod.Status.Phase == corev1.PodPending {
		return // Nobody needs to be asked about a pod that does not run yet.
	}
	request := c.requestOf(pod.UID, at)
	guarded := before != nil && before.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed
	if c.Plan.Mode.Ignores() && !guarded && c.away(at) && !c.allDone(w, request, pod.UID, at) {
		c.Passed++
		return
	}
	about := "pod " + pod.Name + " " + string(pod.UID)
	if !c.allDone(w, request, pod.UID, at) {
		switch {
		case c.strayed(pod):
			c.Strayed++
			return
		case c.starting(pod):
			c.Starting++
			return
		}
	}
	if request == "" {
		c.violatedf(PromiseDone, about, "evicted at %s without a request", stamp(at))
		return
	}
	for _, name := range c.Names[w.Name] {
		if why := c.unfinished(w, request, pod.UID, name, at, true); why != "" {
			c.violatedf(PromiseDone, about, "evicted at %s, but %s", stamp(at), why)
		}
	}
}

func unscheduled(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" }

func (c *checker) allDone(w *Workload, request, pod types.UID, at time.Time) bool {
	if request == "" {
		return false
	}
	for _, name := range c.Names[w.Name] {
		if c.unfinished(w, request, pod, name, at, false) != "" {
			return false
		}
	}
	return true
}

// requestOf is the last request for the pod that was there at that time. Its creation is known in
// whole seconds, so one that was seen later was not there yet, if there was another one.
func (c *checker) requestOf(pod types.UID, at time.Time) types.UID {
	var found types.UID
	for _, seen := range c.History.Requests {
		if string(pod) == seen.Request.Name && !seen.Request.CreationTimestamp.After(at) && (found == "" || !seen.At.After(at.Add(watchLag))) {
			found = seen.Request.UID
		}
	}
	return found
}

// unfinished says why an interceptor's turn was not over, or nothing.
func (c *checker) unfinished(w *Workload, request, pod types.UID, name string, at time.Time, count bool) string {
	if c.cutOff(request, name, at) {
		if count {
			c.CutOff++
		}
		return ""
	}
	if w.Kind == Machines {
		return c.unmoved(pod, name, at, count)
	}
	sign := c.turn(request, name)
	for _, e := range c.Ledger {
		if e.Request != request || e.At.After(at) {
			continue
		}
		switch {
		case e.Deed == Finished && e.Interceptor == name:
			if count {
				c.Finished++
			}
			return ""
		case e.Deed == Began && e.Interceptor == name && e.Told.After(sign) && e.Told.Before(at):
			sign = e.Told
		}
	}
	if sign.IsZero() {
		return fmt.Sprintf("%s never had its turn", name)
	}
	if over := sign.Add(c.Deadline - c.Slack); at.Before(over) {
		return fmt.Sprintf("%s was not done: its last sign of life is of %s", name, stamp(sign))
	}
	if count {
		c.TimedOut++
	}
	return ""
}

// unmoved says why a machine was still in its pod, or nothing. Its interceptor is the
// manager itself, whose silence is no excuse unless its reports were refused.
func (c *checker) unmoved(pod types.UID, name string, at time.Time, count bool) string {
	moved := false
	for _, e := range c.Ledger {
		if e.Pod == pod && e.Interceptor == name && !e.At.After(at) {
			moved = e.Deed == Finished
		}
	}
	switch {
	case !moved && c.hushed(pod, name, at):
		if count {
			c.TimedOut++
		}
		return ""
	case !moved:
		return fmt.Sprintf("%s had not moved the machine", name)
	}
	if count {
		c.Finished++
	}
	return ""
}

// turn is when an interceptor got its turn, or some time before; zero if never.
func (c *checker) turn(request types.UID, name string) time.Time {
	for _, seen := range c.requests[request] {
		if !slices.Contains(seen.Request.Status.ActiveInterceptors, name) && !slices.Contains(seen.Request.Status.ProcessedInterceptors, name) {
			continue
		}
		at := seen.At
		for _, field := range seen.Request.ManagedFields {
			if field.Manager == statusManager && field.Subresource == "status" && field.Time != nil && field.Time.Time.Before(at) {
				at = field.Time.Time
			}
		}
		return at
	}
	return time.Time{}
}

// statusManager writes the controller's part of the status.
const statusManager = "drawbridge"

// judgeBudget checks that those who remain are enough.
func (c *checker) judgeBudget(seen PodSeen, now map[types.UID]PodSeen, evicted map[types.UID]bool) {
	w := c.workload(seen.Pod)
	if w == nil || w.MaxUnavailable < 0 {
		return
	}
	healthy := int32(0)
	for uid, other := range now {
		if other.Pod.Labels[appLabel] == w.Name && uid != seen.Pod.UID && !evicted[uid] && isReady(other.Pod) {
			healthy++
		}
	}
	if least := w.Replicas - w.MaxUnavailable; healthy < least {
		c.violatedf(PromiseBudget, "pod "+seen.Pod.Name+" "+string(seen.Pod.UID), "evicted at %s; %d healthy pods remain, the budget wants %d", stamp(seen.At), healthy, least)
	}
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

func stamp(t time.Time) string { return t.Format("15:04:05.000") }
