package chaos

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The promises about lifecycle.k8s.io.
const (
	PromiseNativeDone    = "no pod ends before its native responders are done or have timed out"
	PromiseNativeTurns   = "one native responder at a time, in the API server's order, each once in an Eviction"
	PromiseNativeAlone   = "our interceptors and native responders take turns"
	PromiseNativeOne     = "one Eviction of a pod at a time"
	PromiseNativeEnd     = "every Eviction ends, and every native request says how"
	PromiseNativeRules   = "the API server refuses no native write of ours"
	PromiseNativeNobody  = "what was withdrawn does not evict"
	nativeEvictor        = lifecyclev1alpha1.EvictionResponderImperativeEviction
	nativeFailed         = string(lifecyclev1alpha1.EvictionConditionFailed)
	nativeEvicted        = string(lifecyclev1alpha1.EvictionConditionTargetEvicted)
	nativeInvalid        = string(lifecyclev1alpha1.EvictionConditionReasonEvictionInvalid)
	nativeActive         = lifecyclev1alpha1.ResponderStateActive
	nativeInactive       = lifecyclev1alpha1.ResponderStateInactive
	nativeEvictorRank    = 100
	nativeClock          = 30 * time.Second // What the API server allows clocks to differ.
	underway             = 5 * time.Second  // How long an eviction may be on its way that was decided on.
	nativeConditionCount = 2
)

// checkNative goes through what was seen of lifecycle.k8s.io.
func (c *checker) checkNative() {
	states := map[types.UID][]EvictionSeen{}
	var order []types.UID
	for _, seen := range c.History.Evictions {
		uid := seen.Eviction.UID
		if states[uid] == nil {
			order = append(order, uid)
		}
		states[uid] = append(states[uid], seen)
	}
	for _, uid := range order {
		c.checkEviction(states[uid])
	}
	wishes := map[types.UID]bool{}
	for _, seen := range c.History.Wishes {
		wishes[seen.Wish.UID] = true
	}
	c.Verdict.Evictions, c.Verdict.Wishes = len(order), len(wishes)
	c.checkTogether()
	c.checkNativeWrites()
	c.Violations = append(c.Violations, unfinishedNatively(c.LeftEvictions, c.LeftWishes)...)
}

// isFinalState reports whether a responder's turn is over.
func isFinalState(s lifecyclev1alpha1.ResponderStateType) bool {
	return s != nativeActive && s != nativeInactive
}

// compareNative is the order of the API server: the higher priority first, then by domain from the
// right, then by key (kubernetes: pkg/apis/lifecycle/validation).
func compareNative(a, b lifecyclev1alpha1.TargetResponder) int {
	parts := func(name string) (domain []string, key string) {
		before, key, _ := strings.Cut(name, "/")
		domain = strings.Split(before, ".")
		slices.Reverse(domain)
		return domain, key
	}
	aDomain, aKey := parts(a.Name)
	bDomain, bKey := parts(b.Name)
	return cmp.Or(cmp.Compare(*b.Priority, *a.Priority), slices.Compare(aDomain, bDomain), cmp.Compare(aKey, bKey))
}

// checkEviction follows one Eviction.
func (c *checker) checkEviction(states []EvictionSeen) {
	about := "Eviction " + states[0].Eviction.Name + " " + string(states[0].Eviction.UID)
	last := map[string]lifecyclev1alpha1.ResponderStateType{}
	signs := map[string]time.Time{}
	for _, seen := range states {
		e := seen.Eviction
		plan := slices.Clone(e.Status.TargetResponders)
		slices.SortFunc(plan, compareNative)
		if want := c.nativePlan(e.Spec.Target.Pod.UID); want != nil && len(plan) > 0 && !slices.EqualFunc(plan, want, sameResponder) {
			c.violatedf(PromiseNativeTurns, about, "its responders are %v, want %v", names(plan), names(want))
			return
		}
		began := false // Somebody whose turn has not come yet.
		for i, r := range plan {
			switch {
			case r.State != nativeInactive && began:
				c.violatedf(PromiseNativeTurns, about, "%s is %s at %s before %s, which is %s", r.Name, r.State, stamp(seen.At), plan[i-1].Name, plan[i-1].State)
			case isFinalState(last[r.Name]) && last[r.Name] != "" && r.State != last[r.Name]:
				c.violatedf(PromiseNativeTurns, about, "%s was %s and is %s at %s", r.Name, last[r.Name], r.State, stamp(seen.At))
			case r.State == lifecyclev1alpha1.ResponderStateInterrupted && last[r.Name] == nativeActive && outcomeNatively(e.Status.Conditions) == "" &&
				seen.At.Before(signs[r.Name].Add(nativeDeadline-nativeClock-c.Slack)):
				c.violatedf(PromiseNativeTurns, about, "%s was passed over at %s; its last sign of life is of %s", r.Name, stamp(seen.At), stamp(signs[r.Name]))
			}
			began = began || !isFinalState(r.State)
			if r.State == nativeActive {
				signs[r.Name] = signOf(e, r.Name)
			}
			last[r.Name] = r.State
		}
	}
	c.countTurns(last)
}

// countTurns counts how the turns of an Eviction have ended.
func (c *checker) countTurns(last map[string]lifecyclev1alpha1.ResponderStateType) {
	for name, state := range last {
		switch {
		case name == nativeEvictor:
		case name == v1alpha1.NativeResponder:
			if state == lifecyclev1alpha1.ResponderStateCompleted {
				c.Nested++
			}
		case state == lifecyclev1alpha1.ResponderStateCompleted:
			c.NativeFinished++
		case state == lifecyclev1alpha1.ResponderStateInterrupted:
			c.NativeTimedOut++
		case state == lifecyclev1alpha1.ResponderStateCanceled:
			c.NativeCanceled++
		}
	}
}

func sameResponder(a, b lifecyclev1alpha1.TargetResponder) bool {
	return a.Name == b.Name && *a.Priority == *b.Priority
}

func names(plan []lifecyclev1alpha1.TargetResponder) []string {
	var all []string
	for _, r := range plan {
		all = append(all, r.Name)
	}
	return all
}

// signOf is the last sign of life of a responder.
func signOf(e *lifecyclev1alpha1.Eviction, name string) (sign time.Time) {
	for _, r := range e.Status.Responders {
		for _, at := range []*metav1.Time{r.StartTime, r.HeartbeatTime} {
			if r.Name == name && at != nil && at.After(sign) {
				sign = at.Time
			}
		}
	}
	return sign
}

// nativePlan are the responders that an Eviction of the pod must have, nil if that is not known.
func (c *checker) nativePlan(pod types.UID) []lifecyclev1alpha1.TargetResponder {
	w := c.workloadOf(pod)
	if w == nil {
		return nil
	}
	plan := slices.Clone(c.Responders[w.Name])
	ours := len(c.Names[w.Name]) > 0 || w.Kind == Surging || w.budgeted()
	if ours && len(plan) < v1alpha1.MaxNativeResponders {
		plan = append(plan, lifecyclev1alpha1.TargetResponder{Name: v1alpha1.NativeResponder, Priority: new(int32(v1alpha1.DefaultNativePriority))})
	}
	plan = append(plan, lifecyclev1alpha1.TargetResponder{Name: nativeEvictor, Priority: new(int32(nativeEvictorRank))})
	slices.SortFunc(plan, compareNative)
	return plan
}

// withNative adds native.drawbridge.dev to the interceptors that a request must have.
func (c *checker) withNative(w *Workload, names []string) []string {
	switch count := len(c.Responders[w.Name]); {
	case count == 0:
		return names
	case count >= v1alpha1.MaxNativeResponders && len(names) > 0:
		return append(names, v1alpha1.NativeInterceptor)
	}
	return append([]string{v1alpha1.NativeInterceptor}, names...)
}

// outcomeNatively is the final condition, "" while something native runs.
func outcomeNatively(conditions []metav1.Condition) string {
	for _, kind := range []string{nativeEvicted, nativeFailed} {
		if meta.IsStatusConditionTrue(conditions, kind) {
			return kind
		}
	}
	return ""
}

// judgeNative is the first promise for native responders: an eviction was admitted at that time,
// or before.
func (c *checker) judgeNative(pod, before *corev1.Pod, at time.Time) {
	w := c.workload(pod)
	if w == nil || len(c.Responders[w.Name]) == 0 || unscheduled(pod) || pod.Status.Phase == corev1.PodPending {
		return
	}
	c.Responded++
	var unfinished []string
	for _, r := range c.Responders[w.Name] {
		if why := c.unanswered(pod.UID, r.Name, at); why != "" {
			unfinished = append(unfinished, why)
		}
	}
	if len(unfinished) == 0 {
		return
	}
	guarded := before != nil && before.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed
	switch {
	case c.Plan.Mode.Ignores() && !guarded && c.away(at):
		if len(c.Names[w.Name]) == 0 { // Else it is counted already.
			c.Passed++
		}
	case c.strayed(pod), c.starting(pod): // The same.
	case c.silent(pod.UID, v1alpha1.NativeInterceptor, at) && !c.hasEviction(pod.UID, at):
		c.NativeUnasked++ // Nobody could write the Eviction for as long as an interceptor may be silent.
	default:
		for _, why := range unfinished {
			c.violatedf(PromiseNativeDone, "pod "+pod.Name+" "+string(pod.UID), "evicted at %s, but %s", stamp(at), why)
		}
	}
}

// hasEviction reports whether there was an Eviction that ran at that time.
func (c *checker) hasEviction(pod types.UID, at time.Time) bool {
	runs := map[types.UID]bool{}
	for _, seen := range c.History.Evictions {
		if e := seen.Eviction; e.Spec.Target.Pod.UID == pod && !seen.At.After(at) {
			runs[e.UID] = !seen.Gone && outcomeNatively(e.Status.Conditions) == ""
		}
	}
	for _, running := range runs {
		if running {
			return true
		}
	}
	return false
}

// unanswered says why the turn of a native responder was not over, or nothing. It counts what
// the responder has done, and silence that was seen.
func (c *checker) unanswered(pod types.UID, name string, at time.Time) string {
	last := types.UID("") // The last Eviction of the pod in which it had a turn.
	sign, began := time.Time{}, time.Time{}
	for _, seen := range c.History.Evictions {
		e := seen.Eviction
		if e.Spec.Target.Pod.UID != pod || seen.At.After(at.Add(watchLag)) || activeResponder(e) != name {
			continue
		}
		if e.UID != last {
			began = seen.At
		}
		last, sign = e.UID, signOf(e, name)
	}
	if last == "" {
		return name + " never had its turn"
	}
	for _, e := range c.Ledger {
		if e.Request == last && e.Interceptor == name && e.Deed == Finished && !e.At.After(at) {
			return ""
		}
	}
	if over := sign.Add(nativeDeadline - nativeClock - c.Slack); at.Before(over) {
		return fmt.Sprintf("%s was not done: its turn began at %s, its last sign of life is of %s", name, stamp(began), stamp(sign))
	}
	return ""
}

// activeResponder is the one that has the turn, "" if nobody has.
func activeResponder(e *lifecyclev1alpha1.Eviction) string {
	for _, r := range e.Status.TargetResponders {
		if r.State == nativeActive {
			return r.Name
		}
	}
	return ""
}

// checkNativeWrites looks for what the API server has refused, although nobody has told it to. A conflict is
// no refusal, an object that somebody has deleted a moment before is none, nor is an API server
// that has too much to do, or one that has just begun and knows no permissions yet.
func (c *checker) checkNativeWrites() {
	kind := func(w Write) string { return w.Of[:strings.LastIndexByte(w.Of, ' ')] }
	permitted := map[string]bool{}
	for _, w := range c.Writes {
		permitted[kind(w)] = permitted[kind(w)] || w.Code/100 == 2
	}
	for _, w := range c.Writes {
		if !w.Native {
			continue
		}
		c.NativeWrites++
		switch w.Code {
		case http.StatusConflict, http.StatusNotFound, http.StatusTooManyRequests:
			continue
		}
		if w.Code/100 == 4 && !c.refusedNatively(w) && (!w.Unauthorized || !permitted[kind(w)]) {
			c.violatedf(PromiseNativeRules, w.Of, "refused at %s with %d", stamp(w.At), w.Code)
		}
	}
}

// refusedNatively reports whether the policy engine refused such writes.
func (c *checker) refusedNatively(w Write) bool {
	return c.refused(w) && slices.ContainsFunc(c.Refusals, func(r Refused) bool { return r.Refusal.Write.native() })
}

// versionOf is the place of a state in the order of all writes.
func versionOf(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // The API server has written it.
	return n
}

// isCompleted reports whether a responder has said that it is done.
func isCompleted(e *lifecyclev1alpha1.Eviction, name string) bool {
	return slices.ContainsFunc(e.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool { return r.Name == name && r.CompletionTime != nil })
}

// nativeDeadline is how long a native responder may be silent: the API server knows it, and
// nobody can change it.
const nativeDeadline = 20 * time.Minute
