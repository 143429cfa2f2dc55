package chaos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
)

// Timeline is what happened, in order, for people.
func (h *History) Timeline() string {
	var lines []Fact
	lines = append(lines, h.Facts...)
	for _, e := range h.Ledger {
		lines = append(lines, Fact{e.At, fmt.Sprintf("ledger: %s %s for request %s of pod %s %s", e.Interceptor, e.Deed, e.Request, e.Pod, e.Victim)})
	}
	for _, a := range h.Attempts {
		lines = append(lines, Fact{a.At, fmt.Sprintf("attempt: %s: %s: accepted %t: %s", a.Kind, a.What, a.Accepted, a.Answer)})
	}
	for _, b := range h.Budgets {
		lines = append(lines, Fact{b.At, fmt.Sprintf("budget %s: generation %d, observed %d, allowed %d, gone %t",
			b.Budget.Name, b.Budget.Generation, b.Budget.Status.ObservedGeneration, b.Budget.Status.DisruptionsAllowed, b.Gone)})
	}
	for _, b := range h.EvictionBudgets {
		var granted []string
		for _, g := range b.Budget.Status.Grants {
			granted = append(granted, strings.TrimSpace(g.Pod+" "+g.PodUID+" "+g.DisruptionBudget))
		}
		lines = append(lines, Fact{b.At, fmt.Sprintf("EvictionBudget %s (version %s): granted %v, groups %+v, gone %t", b.Budget.Name, b.Budget.ResourceVersion, granted, b.Budget.Status.Groups, b.Gone)})
	}
	for _, c := range h.Calls {
		lines = append(lines, Fact{c.At, fmt.Sprintf("eviction of %s %s by %s: %d", c.Name, c.UID, c.User, c.Code)})
	}
	for _, d := range h.Deletions {
		lines = append(lines, Fact{d.At, fmt.Sprintf("deletion of %s %s by the managers: %d", d.Name, d.UID, d.Code)})
	}
	for _, p := range h.Pods {
		at, evicted := admitted(p)
		lines = append(lines, Fact{p.At, fmt.Sprintf("pod %s %s (version %s, node %s): ready %t, deleting %t, gone %t, missed something %t, evicted %t %s, guard %q, handed up %t",
			p.Pod.Name, p.Pod.UID, p.Pod.ResourceVersion, p.Pod.Spec.NodeName, isReady(p.Pod), p.Pod.DeletionTimestamp != nil, p.Gone, p.Gap, evicted, stamp(at),
			p.Pod.Labels[v1alpha1.GuardLabel], p.Pod.Annotations[surge.HandedUpAnnotation] != "")})
	}
	for _, q := range h.Requests {
		s := q.Request.Status
		var requesters []string
		for _, requester := range q.Request.Spec.Requesters {
			requesters = append(requesters, requester.Name)
		}
		lines = append(lines, Fact{q.At, fmt.Sprintf("request %s of pod %s (version %s): active %v, processed %v, outcome %q, requesters %v, gone %t",
			q.Request.UID, q.Request.Name, q.Request.ResourceVersion, s.ActiveInterceptors, s.ProcessedInterceptors, outcome(q.Request), requesters, q.Gone)})
	}
	for _, w := range h.Wishes {
		lines = append(lines, Fact{w.At, fmt.Sprintf("native request %s of pod %s (version %s): intent %s, deleting %t, outcome %q, gone %t",
			w.Wish.Name, w.Wish.Spec.Target.Pod.UID, w.Wish.ResourceVersion, w.Wish.Spec.Intent, w.Wish.DeletionTimestamp != nil, outcomeNatively(w.Wish.Status.Conditions), w.Gone)})
	}
	for _, e := range h.Evictions {
		var states []string
		for _, r := range e.Eviction.Status.TargetResponders {
			states = append(states, r.Name+" "+string(r.State))
		}
		lines = append(lines, Fact{e.At, fmt.Sprintf("Eviction %s %s of pod %s (version %s): %v, outcome %q, gone %t",
			e.Eviction.Name, e.Eviction.UID, e.Eviction.Spec.Target.Pod.UID, e.Eviction.ResourceVersion, states, outcomeNatively(e.Eviction.Status.Conditions), e.Gone)})
	}
	slices.SortStableFunc(lines, func(a, b Fact) int { return a.At.Compare(b.At) })
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%s %s\n", stamp(line.At), line.What)
	}
	return b.String()
}
