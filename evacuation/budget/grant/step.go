package grant

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Step decides about all requests. Those whose pods no budget covers are granted.
func Step(in Input) Decision {
	var d Decision
	counts := make([]*count, len(in.Budgets))
	for i := range in.Budgets {
		counts[i] = newCount(&in.Budgets[i], in.Now)
	}
	byName := make([]int, len(counts))
	for i := range byName {
		byName[i] = i
	}
	slices.SortFunc(byName, func(a, b int) int { return strings.Compare(counts[a].Name, counts[b].Name) })
	requests := slices.Clone(in.Requests)
	slices.SortFunc(requests, func(a, b Request) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for i := range requests {
		r := &requests[i]
		var of []int
		for _, b := range byName {
			if counts[b].pods[r.Pod] != nil {
				of = append(of, b)
			}
		}
		if wait := refuse(counts, of, r); wait != nil {
			d.Waiting = append(d.Waiting, *wait)
			continue
		}
		d.Granted = append(d.Granted, grant(counts, of, r))
	}
	for _, c := range counts {
		d.States = append(d.States, c.end())
		if at := c.wakeAt; !at.IsZero() && (d.WakeAt.IsZero() || at.Before(d.WakeAt)) {
			d.WakeAt = at
		}
	}
	return d
}

// refuse asks all budgets of a pod. What one has granted that another one refuses is taken
// back: so two of them never wait for each other.
func refuse(counts []*count, of []int, r *Request) (first *Wait) {
	var refused []int
	for _, b := range of {
		c := counts[b]
		pod := c.pods[r.Pod]
		w := c.check(r, pod)
		if w == nil {
			continue
		}
		w.Request, w.Budget, w.Group = r.UID, c.Name, pod.Group
		w.Message = fmt.Sprintf("EvictionBudget %s: %s.", c.Name, w.Message)
		c.state.Waiting++
		if pod.Placed {
			c.group(pod.Group).Waiting++
		}
		if c.state.Wait == nil {
			c.state.Wait = w
		}
		if w.Reason == v1alpha1.ReasonGroupsDisrupted && c.blocked == nil {
			c.blocked = r
		}
		if !w.Until.IsZero() {
			c.wake(w.Until)
		}
		refused = append(refused, b)
		if first == nil {
			first = w
		}
	}
	if first == nil {
		return nil
	}
	for _, b := range of {
		if !slices.Contains(refused, b) {
			counts[b].release(r)
		}
	}
	return first
}

// check says why a budget lets a pod wait, nil if it may go.
func (c *count) check(r *Request, p *Pod) *Wait {
	if c.granted[p.UID] || p.Leaving {
		return nil
	}
	if reason, message, until := c.closed(); reason != "" {
		return &Wait{Reason: reason, Message: message, Until: until}
	}
	if !c.open || !p.Ready || !p.Placed {
		return nil
	}
	g := c.group(p.Group)
	if c.Rules.Grouped {
		if n, others := c.others(p.Group); n >= c.Rules.MaxGroups {
			return &Wait{Reason: v1alpha1.ReasonGroupsDisrupted, Message: fmt.Sprintf("%s disrupted, and at most %d may be at a time", groupsAre(n, others), c.Rules.MaxGroups)}
		}
		if b := c.blocked; b != nil && r.Created.After(b.Created.Add(Overtake)) {
			return &Wait{Reason: v1alpha1.ReasonTurnOfOthers, Message: "pods of other groups have waited much longer"}
		}
	}
	more := 0
	if c.available(p) {
		more = 1
	}
	if allowed := c.allowed(g); g.Disrupted+c.unknown()+more > allowed {
		of := "of its pods"
		if c.Rules.Grouped {
			of = "of the pods of group " + strconv.Quote(p.Group)
		}
		return &Wait{Reason: v1alpha1.ReasonPodsUnavailable, Message: fmt.Sprintf("at most %s %s may be unavailable, and as many are", c.Rules.MaxUnavailable.String(), of)}
	}
	return nil
}

// groupsAre is the beginning of a sentence about n groups, some of which are named.
func groupsAre(n int, names []string) string {
	quoted := make([]string, 0, len(names)+1)
	for _, name := range names {
		quoted = append(quoted, strconv.Quote(name))
	}
	if n == 1 {
		return "group " + quoted[0] + " is"
	}
	if n > len(names) {
		quoted = append(quoted, "...")
	}
	return "groups " + strings.Join(quoted, ", ") + " are"
}

// grant lets a request go on.
func grant(counts []*count, of []int, r *Request) Granted {
	granted := Granted{Request: r.UID, Pod: r.Pod}
	for _, b := range of {
		c := counts[b]
		pod := c.pods[r.Pod]
		if c.granted[pod.UID] || pod.Leaving || len(c.state.Grants) >= MaxGrants {
			continue
		}
		c.grant(*r, pod)
		granted.Budgets = append(granted.Budgets, b)
	}
	return granted
}

// release takes a grant back that was not acted upon.
func (c *count) release(r *Request) {
	if !c.granted[r.Pod] {
		return
	}
	delete(c.granted, r.Pod)
	c.pending--
	c.state.Grants = slices.DeleteFunc(c.state.Grants, func(g Grant) bool { return g.Pod == r.Pod })
	if pod := c.pods[r.Pod]; c.available(pod) {
		g := c.group(pod.Group)
		g.Available++
		g.Disrupted--
		c.names = nil
	}
}
