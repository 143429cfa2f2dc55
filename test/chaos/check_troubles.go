package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// forgeries are the troubles of which nothing may ever be accepted. The others may be:
// what comes of them is judged.
var forgeries = []TroubleKind{ForgeOutcome, ForgePlan, ForgeReport, PostReview}

// checkForged looks for what others than the manager have decided: by what those say who
// tried, and by what the API server notes about every field.
func (c *checker) checkForged() {
	for _, a := range c.History.Attempts {
		c.Verdict.Attempts++
		if !a.Accepted {
			continue
		}
		c.Taken++
		if slices.Contains(forgeries, a.Kind) {
			c.violatedf(PromiseForged, string(a.Kind), "%s at %s was accepted: %s", a.What, stamp(a.At), a.Answer)
		}
	}
	for _, e := range c.Ledger {
		if e.Deed == Lied {
			c.violatedf(PromiseForged, "pod "+string(e.Pod), "%s has completed at %s in the name of %s, and that was accepted", e.Interceptor, stamp(e.At), e.Victim)
		}
	}
	told := map[string]bool{}
	for _, seen := range c.History.Requests {
		for _, field := range seen.Request.ManagedFields {
			if field.Manager == statusManager {
				continue
			}
			about := "request for " + seen.Request.Name
			for _, what := range decisionsIn(field) {
				if key := about + field.Manager + what; !told[key] {
					told[key] = true
					c.violatedf(PromiseForged, about, "%s was written by %s, seen at %s", what, field.Manager, stamp(seen.At))
				}
			}
		}
		for _, requester := range seen.Request.Spec.Requesters {
			if grace := requester.GracePeriodSeconds; grace != nil && *grace == forgedGrace && !told[seen.Request.Name] {
				told[seen.Request.Name] = true
				c.violatedf(PromiseForged, "request for "+seen.Request.Name, "a made-up review's grace period is that of requester %s, seen at %s", requester.Name, stamp(seen.At))
			}
		}
	}
}

// forgedGrace is the grace period in seconds that only made-up reviews ask for.
const forgedGrace = 0

// decided are the fields of the status that only the manager writes.
var decided = []string{"f:targetInterceptors", "f:activeInterceptors", "f:processedInterceptors", "f:activationTime"}

// decisionsIn are the fields a manager of fields owns which are not for him.
func decisionsIn(entry metav1.ManagedFieldsEntry) []string {
	if entry.FieldsV1 == nil {
		return nil
	}
	var fields struct {
		Status map[string]json.RawMessage `json:"f:status"`
	}
	if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil // The API server writes no such thing.
	}
	var found []string
	for _, name := range decided {
		if _, ok := fields.Status[name]; ok {
			found = append(found, strings.TrimPrefix(name, "f:"))
		}
	}
	for _, kind := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		if bytes.Contains(fields.Status["f:conditions"], fmt.Appendf(nil, `k:{\"type\":\"%s\"}`, kind)) {
			found = append(found, "condition "+kind)
		}
	}
	return found
}

const (
	// maxWrites is how often a minute the managers may write the same. Most that happens
	// to an object in a minute of a run with all its faults is a third of that; a loop
	// makes hundreds.
	maxWrites = 60
	// maxReplacements is how many pods a Deployment of one may have in all, besides those
	// that were evicted: a drain that does not cordon evicts the successors, too.
	maxReplacements = 8
)

// checkPace looks for loops of the managers, and for those they drive others into.
func (c *checker) checkPace() {
	times, refused := map[string][]time.Time{}, map[string][]time.Time{}
	for _, w := range c.Writes {
		w.Of += c.incarnation(w)
		times[w.Of] = append(times[w.Of], w.At)
		if c.refused(w) {
			c.Refused++
			refused[w.Of] = append(refused[w.Of], w.At)
		}
	}
	for _, of := range slices.Sorted(maps.Keys(refused)) {
		most := mostInAMinute(refused[of])
		c.MostRefused = max(c.MostRefused, most)
		if most > maxRefused {
			c.violatedf(PromisePace, of, "refused %d times within a minute", most)
		}
	}
	for _, of := range slices.Sorted(maps.Keys(times)) {
		if most := mostInAMinute(times[of]); most > maxWrites {
			c.violatedf(PromisePace, of, "written %d times within a minute", most)
		} else if most > c.Busiest {
			c.Busiest = most
		}
	}
	pods, evicted := map[types.UID]bool{}, map[types.UID]bool{}
	for _, seen := range c.Pods {
		if seen.Pod.Labels[appLabel] != templateApp {
			continue
		}
		pods[seen.Pod.UID] = true
		if _, yes := admitted(seen); yes {
			evicted[seen.Pod.UID] = true
		}
	}
	if made := len(pods) - len(evicted); made > maxReplacements {
		c.violatedf(PromisePace, "Deployment "+templateApp, "it has made %d pods that were not evicted, and wants one", made)
	}
}

// incarnation tells the pods of one name apart: one that comes back to a node that everybody
// drains is evicted again and again, which is no loop of the managers.
func (c *checker) incarnation(w Write) string {
	name, ok := strings.CutPrefix(w.Of, "pods ")
	if !ok {
		return ""
	}
	uid := types.UID("")
	for _, seen := range c.Pods {
		if seen.Pod.Name == name && !seen.At.After(w.At.Add(watchLag)) {
			uid = seen.Pod.UID
		}
	}
	return " " + string(uid)
}

// mostInAMinute is the largest number of times that lie within a minute.
func mostInAMinute(times []time.Time) int {
	times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	most, first := 0, 0
	for last := range times {
		for times[last].Sub(times[first]) > time.Minute {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// checkFinale judges how it began, and the drain in the end: nothing is broken any more but by the troubles
// that last, and those are no excuse.
func (c *checker) checkFinale() {
	if c.Unguarded != "" {
		c.violatedf(PromiseGuard, "the run", "before it began: %s", c.Unguarded)
	}
	f := c.Finale
	if f == nil {
		return
	}
	c.Finales++
	if !f.Ended {
		c.violatedf(PromiseDrain, "node "+f.Node, "kubectl drain began at %s and had not ended well at %s: %s", stamp(f.From), stamp(f.To), f.Answer)
	}
	evicted := map[string][]types.UID{}
	for _, seen := range c.Pods {
		at, ok := admitted(seen)
		if name := seen.Pod.Name; ok && !at.Before(f.From) && !slices.Contains(evicted[name], seen.Pod.UID) {
			evicted[name] = append(evicted[name], seen.Pod.UID)
		}
	}
	for _, d := range c.Deletions {
		if !d.At.Before(f.From) && d.Code/100 == 2 && !slices.Contains(evicted[d.Name], d.UID) {
			evicted[d.Name] = append(evicted[d.Name], d.UID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(evicted)) {
		if n := len(evicted[name]); n > 1 {
			c.violatedf(PromiseDrain, "pod "+name, "one drain, which began at %s, has evicted %d pods of this name", stamp(f.From), n)
		}
	}
	for _, uid := range sortedKeys(c.requests) {
		states := c.requests[uid]
		if !states[0].At.Before(f.From) {
			c.checkFinaleOf(states[0].At, states[len(states)-1].Request)
		}
	}
}

// checkFinaleOf judges a request that began in the finale, by its last state.
func (c *checker) checkFinaleOf(from time.Time, er *v1alpha1.EvictionRequest) {
	w := c.workloadOf(types.UID(er.Name))
	if w == nil || w.Kind != Intercepted {
		return
	}
	about := "request for " + er.Name
	last := time.Time{} // When somebody was done last, so that the guard was to be closed.
	for i, behaviour := range w.Interceptors {
		name := c.Names[w.Name][i]
		end, done := c.finishedAt(er.UID, name)
		if done && end.After(last) {
			last = end
		}
		switch behaviour.Habit {
		case Silent, Hangs, Future:
			continue // They are to be passed over.
		}
		switch over := slices.Contains(er.Status.ProcessedInterceptors, name); {
		case over && !done:
			c.violatedf(PromiseWork, about, "%s of %s works, and its turn was over before it had finished", name, w.Name)
		case over && !completed(er, name):
			c.violatedf(PromiseWork, about, "%s of %s had finished at %s, and was passed over as if it had been silent", name, w.Name, stamp(end))
		}
	}
	// The guard stays away from pods with a budget of the user's own.
	if c.Plan.Mode != ModeNoGuard && w.MaxUnavailable < 0 && last.Sub(from) >= guardTime {
		c.checkGuarded(types.UID(er.Name), about, last)
	}
}

// completed reports whether the completion of an interceptor is in the request.
func completed(er *v1alpha1.EvictionRequest, name string) bool {
	return slices.ContainsFunc(er.Status.Interceptors, func(s v1alpha1.InterceptorStatus) bool { return s.Name == name && s.CompletionTime != nil })
}

func (c *checker) workloadOf(pod types.UID) *Workload {
	for _, seen := range c.Pods {
		if seen.Pod.UID == pod {
			return c.workload(seen.Pod)
		}
	}
	return nil
}

func (c *checker) finishedAt(request types.UID, name string) (time.Time, bool) {
	for _, e := range c.Ledger {
		if e.Request == request && e.Interceptor == name && e.Deed == Finished {
			return e.At, true
		}
	}
	return time.Time{}, false
}

// guardTime is how long it may take until the guard is closed. Whoever worked for less may
// have been too fast for it.
const guardTime = 4 * time.Second

// checkGuarded wants that at that time the pod had the guard's label and the guard's
// budget refused evictions.
func (c *checker) checkGuarded(pod types.UID, about string, when time.Time) {
	label := ""
	for _, seen := range c.Pods {
		if seen.Pod.UID == pod && !seen.At.After(when) {
			label = seen.Pod.Labels[v1alpha1.GuardLabel]
		}
	}
	if label != v1alpha1.GuardClosed {
		c.violatedf(PromiseGuard, about, "its guard is not closed at %s, but %q", stamp(when), label)
		return
	}
	var budget *BudgetSeen
	for i := range c.Budgets {
		if seen := &c.Budgets[i]; seen.Budget.Name == v1alpha1.GuardBudgetName && !seen.At.After(when) {
			budget = seen
		}
	}
	switch {
	case budget == nil || budget.Gone:
		c.violatedf(PromiseGuard, about, "its guard is closed at %s, and there is no budget", stamp(when))
	case budget.Budget.Status.ObservedGeneration < budget.Budget.Generation || budget.Budget.Status.DisruptionsAllowed > 0:
		c.violatedf(PromiseGuard, about, "its guard is closed at %s, and the budget is not in force: %+v", stamp(when), budget.Budget.Status)
	}
}

// templateApp is the application of GuardTemplate.
const templateApp = "guard-template"
