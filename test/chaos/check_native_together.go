package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// written is a state of an object that concerns a pod, in the order of the API server.
type written struct {
	version uint64
	pod     types.UID
	at      time.Time
	// One of these.
	request  *RequestSeen
	eviction *EvictionSeen
	wish     *WishSeen
	ended    *PodSeen // The deletion of the pod was asked for.
}

// togetherness is what is known of one pod at a time.
type togetherness struct {
	ours      string // Our interceptor that has the turn.
	request   types.UID
	requested bool // Our request has requesters besides the Eviction, and runs.
	evictions map[types.UID]*lifecyclev1alpha1.Eviction
	wishes    map[types.UID]bool      // Whether they want.
	since     map[types.UID]time.Time // When an Eviction was first seen.
	canceled  time.Time               // When nobody began to want it.
	ended     bool                    // The deletion of the pod was asked for.
	told      map[string]bool
}

// checkTogether puts all that concerns a pod into one order, that of the versions: they are of one
// counter.
func (c *checker) checkTogether() {
	if c.LostThread {
		return // States are missing, so nobody can tell what was at the same time.
	}
	pods := map[types.UID]*togetherness{}
	for _, w := range c.allWritten() {
		t := pods[w.pod]
		if t == nil {
			t = &togetherness{evictions: map[types.UID]*lifecyclev1alpha1.Eviction{}, wishes: map[types.UID]bool{}, since: map[types.UID]time.Time{}, told: map[string]bool{}}
			pods[w.pod] = t
		}
		t.take(w)
		c.checkAtATime(t, w)
	}
}

func (c *checker) allWritten() []written {
	var all []written
	for i := range c.History.Requests {
		seen := &c.History.Requests[i]
		all = append(all, written{version: versionOf(seen.Request.ResourceVersion), pod: types.UID(seen.Request.Name), at: seen.At, request: seen})
	}
	for i := range c.History.Evictions {
		seen := &c.History.Evictions[i]
		all = append(all, written{version: versionOf(seen.Eviction.ResourceVersion), pod: seen.Eviction.Spec.Target.Pod.UID, at: seen.At, eviction: seen})
	}
	for i := range c.History.Wishes {
		seen := &c.History.Wishes[i]
		all = append(all, written{version: versionOf(seen.Wish.ResourceVersion), pod: seen.Wish.Spec.Target.Pod.UID, at: seen.At, wish: seen})
	}
	ended := map[types.UID]bool{}
	for i := range c.Pods {
		seen := &c.Pods[i]
		if uid := seen.Pod.UID; !ended[uid] && !seen.Gap && (seen.Gone || seen.Pod.DeletionTimestamp != nil) {
			ended[uid] = true
			all = append(all, written{version: versionOf(seen.Pod.ResourceVersion), pod: uid, at: seen.At, ended: seen})
		}
	}
	slices.SortStableFunc(all, func(a, b written) int { return cmp.Compare(a.version, b.version) })
	return all
}

// take notes a state.
func (t *togetherness) take(w written) {
	switch {
	case w.request != nil:
		er := w.request.Request
		t.ours, t.request, t.requested = "", er.UID, false
		if w.request.Gone || outcome(er) != "" {
			return
		}
		t.requested = slices.ContainsFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name != v1alpha1.NativeInterceptor }) ||
			v1alpha1.Forbidding(er) != ""
		if active := er.Status.ActiveInterceptors; len(active) > 0 && active[0] != v1alpha1.NativeInterceptor && active[0] != v1alpha1.ImperativeEvictionInterceptor {
			t.ours = active[0]
		}
	case w.eviction != nil:
		e := w.eviction.Eviction
		if _, known := t.since[e.UID]; !known {
			t.since[e.UID] = w.at
		}
		if t.evictions[e.UID] = e; w.eviction.Gone {
			delete(t.evictions, e.UID)
		}
	case w.wish != nil:
		wish := w.wish.Wish
		t.wishes[wish.UID] = !w.wish.Gone && wish.DeletionTimestamp == nil && wish.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction
	}
	t.ended = t.ended || w.ended != nil
	switch {
	case t.wanted():
		t.canceled = time.Time{}
	case t.canceled.IsZero() && w.ended == nil:
		t.canceled = w.at
	}
}

func (t *togetherness) wanted() bool {
	for _, wants := range t.wishes {
		if wants {
			return true
		}
	}
	return t.requested
}

// running are the Evictions that have not ended, by name.
func (t *togetherness) running() (running []*lifecyclev1alpha1.Eviction) {
	for _, e := range t.evictions {
		if outcomeNatively(e.Status.Conditions) == "" {
			running = append(running, e)
		}
	}
	slices.SortFunc(running, func(a, b *lifecyclev1alpha1.Eviction) int { return cmp.Compare(a.Name, b.Name) })
	return running
}

// once reports whether something is said for the first time of a pod.
func (t *togetherness) once(what string) bool {
	said := t.told[what]
	t.told[what] = true
	return !said
}

// checkAtATime judges a pod after a state of something that concerns it.
func (c *checker) checkAtATime(t *togetherness, w written) {
	about, running := "pod "+string(w.pod), t.running()
	if len(running) > 1 && t.once("two") {
		c.violatedf(PromiseNativeOne, about, "%s and %s both run at %s", running[0].Name, running[1].Name, stamp(w.at))
	}
	for _, e := range running {
		theirs := activeResponder(e)
		// A call of the evictor may be on its way when an Eviction begins.
		if w.ended != nil && theirs != nativeEvictor && !isCompleted(e, theirs) && w.at.Sub(t.since[e.UID]) > underway && t.wanted() && c.byUs(w) && t.once("under") {
			c.violatedf(PromiseNativeDone, about, "evicted at %s in the turn of %q", stamp(w.at), theirs)
		}
		if theirs == "" || theirs == v1alpha1.NativeResponder || theirs == nativeEvictor {
			continue
		}
		// A budget is asked even when a deadline has ended all other turns of ours. With the end of
		// the pod all turns end.
		if !t.ended && t.ours != "" && !c.isPassedOver(t.request) && t.once(t.ours+theirs) {
			c.violatedf(PromiseNativeAlone, about, "it is the turn of %s and of %s at %s", t.ours, theirs, stamp(w.at))
		}
	}
	if w.ended != nil && c.byUs(w) && len(t.wishes) > 0 && !t.wanted() && len(running) == 0 && w.at.Sub(t.canceled) > underway && t.once("nobody") {
		c.violatedf(PromiseNativeNobody, about, "evicted at %s, and nobody has wanted that since %s", stamp(w.at), stamp(t.canceled))
	}
}

// isPassedOver reports whether the turn of native.drawbridge.dev in a request ended without its
// completion, because nothing could be reported for the whole deadline.
func (c *checker) isPassedOver(request types.UID) bool {
	for _, seen := range c.requests[request] {
		er := seen.Request
		if slices.Contains(er.Status.ProcessedInterceptors, v1alpha1.NativeInterceptor) && v1alpha1.ReportOf(er, v1alpha1.NativeInterceptor).CompletionTime == nil {
			sign := c.turn(request, v1alpha1.NativeInterceptor)
			if beat := v1alpha1.ReportOf(er, v1alpha1.NativeInterceptor).HeartbeatTime; beat != nil && beat.After(sign) {
				sign = beat.Time
			}
			return !seen.At.Before(sign.Add(c.Deadline - c.Slack))
		}
	}
	return false
}

// byUs reports whether the managers have evicted the pod.
func (c *checker) byUs(w written) bool {
	return slices.ContainsFunc(c.Calls, func(call Call) bool {
		return call.UID == w.pod && call.User == c.Manager && (call.Code == 0 || call.Code/100 == 2) && !call.At.After(w.at)
	})
}

// unfinishedNatively says what has not ended natively, and which requests do not say how it has.
func unfinishedNatively(evictions []lifecyclev1alpha1.Eviction, wishes []lifecyclev1alpha1.EvictionRequest) []Violation {
	var found []Violation
	violatedf := func(about, format string, args ...any) {
		found = append(found, Violation{PromiseNativeEnd, about, fmt.Sprintf(format, args...)})
	}
	relevant := map[types.UID]*lifecyclev1alpha1.Eviction{}
	for i := range evictions {
		e := &evictions[i]
		if outcomeNatively(e.Status.Conditions) == "" && e.DeletionTimestamp == nil {
			violatedf("Eviction "+e.Name, "responders %+v", e.Status.TargetResponders)
		}
		pod := e.Spec.Target.Pod.UID
		if other := relevant[pod]; other == nil || rankOf(e) > rankOf(other) || rankOf(e) == rankOf(other) && endOf(e).After(endOf(other)) {
			relevant[pod] = e
		}
	}
	for i := range wishes {
		wish := &wishes[i]
		if wish.DeletionTimestamp != nil {
			continue
		}
		about := "native request " + wish.Name
		if len(wish.Status.Conditions) < nativeConditionCount || wish.Status.ObservedGeneration == nil || *wish.Status.ObservedGeneration != wish.Generation {
			violatedf(about, "it has generation %d and the status %+v", wish.Generation, wish.Status)
			continue
		}
		e := relevant[wish.Spec.Target.Pod.UID]
		if failed := meta.FindStatusCondition(wish.Status.Conditions, nativeFailed); e == nil || failed != nil && failed.Reason == nativeInvalid ||
			outcomeNatively(wish.Status.Conditions) == nativeEvicted {
			continue
		}
		for _, kind := range []string{nativeFailed, nativeEvicted} {
			theirs, its := meta.FindStatusCondition(wish.Status.Conditions, kind), meta.FindStatusCondition(e.Status.Conditions, kind)
			if theirs == nil || its == nil || theirs.Status != its.Status || theirs.Reason != its.Reason {
				violatedf(about, "its condition is %+v, that of Eviction %s is %+v", theirs, e.Name, its)
			}
		}
	}
	return found
}

// rankOf orders the Evictions of a pod: one that has evicted it counts most, one that runs next.
func rankOf(e *lifecyclev1alpha1.Eviction) int {
	switch outcomeNatively(e.Status.Conditions) {
	case nativeEvicted:
		return 2
	case "":
		return 1
	default:
		return 0
	}
}

// endOf is when an Eviction has ended.
func endOf(e *lifecyclev1alpha1.Eviction) time.Time {
	if condition := meta.FindStatusCondition(e.Status.Conditions, outcomeNatively(e.Status.Conditions)); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return time.Time{}
}
