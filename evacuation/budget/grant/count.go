package grant

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// count is a budget while it is decided about.
type count struct {
	*Budget
	now    time.Time
	groups map[string]*Group
	pods   map[types.UID]*Pod
	// granted are the pods with a grant, by their UID.
	granted map[types.UID]bool
	// pending is how many of them have not begun to leave.
	pending int
	state   State
	// open: a window is open, or there are none. never: none will open.
	open, never bool
	// wakeAt is when a pod has settled.
	wakeAt time.Time
	// names are those of the groups with unavailable pods, sorted; nil if not known.
	names []string
	// blocked is the oldest request that waits for other groups.
	blocked *Request
}

// newCount counts what is available and what is not.
func newCount(b *Budget, now time.Time) *count {
	c := &count{Budget: b, now: now, groups: map[string]*Group{}, pods: make(map[types.UID]*Pod, len(b.Pods)), granted: make(map[types.UID]bool, len(b.Grants))}
	c.state.LastGrant, c.state.Covered = b.LastGrant, len(b.Pods)
	for i := range b.Pods {
		c.pods[b.Pods[i].UID] = &b.Pods[i]
	}
	c.open = true
	if len(b.Rules.Windows) > 0 {
		opening, open, err := b.Rules.Windows.At(now)
		c.state.Opening, c.open, c.never = opening, open, err != nil
		if err == nil && open {
			c.wake(opening.End)
		} else if err == nil {
			c.wake(opening.Start)
		}
	}
	left := c.grants()
	owners := map[types.UID]*owner{}
	for i := range b.Pods {
		c.pod(&b.Pods[i], owners)
	}
	c.missing(owners, left)
	return c
}

// grants notes those of pods that are there, and returns those of pods that have left.
func (c *count) grants() (left []Grant) {
	for _, g := range c.Grants {
		pod := c.pods[g.Pod]
		switch {
		case pod == nil:
			left = append(left, g)
		case g.Over && !pod.Leaving:
		default:
			c.granted[g.Pod] = true
			c.state.Grants = append(c.state.Grants, g)
			if !pod.Leaving {
				c.pending++
			}
		}
	}
	return left
}

func (c *count) group(name string) *Group {
	g := c.groups[name]
	if g == nil {
		g = &Group{Name: name}
		c.groups[name] = g
	}
	return g
}

func (c *count) pod(p *Pod, owners map[types.UID]*owner) {
	o := ownerOf(owners, p.Owner)
	if !p.Placed {
		return // It is missing yet.
	}
	if c.Rules.Grouped && p.Group == "" {
		c.state.Ungrouped++
	}
	o.groups[p.Group] = true
	if p.Leaving {
		o.left = append(o.left, departed{Gone: Gone{Owner: p.Owner, Group: p.Group, Created: p.Created, At: p.LeavingSince}, leaving: true})
		return
	}
	o.placed++
	if p.Ready {
		o.ready++
	}
	g := c.group(p.Group)
	g.Expected++
	if c.available(p) {
		g.Available++
		return
	}
	g.Disrupted++
}

// available reports whether a pod is there for its users.
func (c *count) available(p *Pod) bool {
	if !p.Placed || p.Leaving || c.granted[p.UID] || !p.Ready {
		return false
	}
	if at := p.ReadySince.Add(c.Rules.Settle); c.now.Before(at) {
		c.wake(at)
		return false
	}
	return true
}

func (c *count) wake(at time.Time) {
	if c.wakeAt.IsZero() || at.Before(c.wakeAt) {
		c.wakeAt = at
	}
}

// allowed is how many pods of a group may be unavailable.
func (c *count) allowed(g *Group) int {
	// The API server has checked the value; what it lets through allows nothing.
	n, err := intstr.GetScaledValueFromIntOrPercent(&c.Rules.MaxUnavailable, g.Expected, true)
	if err != nil {
		return 0
	}
	return n
}

// nothing reports whether the budget allows nothing at all.
func (c *count) nothing() bool {
	m := c.Rules.MaxUnavailable
	return m.Type == intstr.Int && m.IntVal == 0 || m.Type == intstr.String && m.StrVal == "0%"
}

// unknown is how many pods are missing that may be missing in any group.
func (c *count) unknown() int {
	if g := c.groups[UnknownGroup]; g != nil {
		return g.Disrupted
	}
	return 0
}

// others is how many groups but one have unavailable pods, and the first names of them.
func (c *count) others(but string) (n int, names []string) {
	if c.names == nil {
		c.names = []string{}
		for name, g := range c.groups {
			if g.Disrupted > 0 {
				c.names = append(c.names, name)
			}
		}
		slices.Sort(c.names)
	}
	n = len(c.names)
	if g := c.groups[but]; g != nil && g.Disrupted > 0 {
		n--
	}
	for _, name := range c.names {
		if len(names) == maxNamed {
			break
		}
		if name != but {
			names = append(names, name)
		}
	}
	return n, names
}

// maxNamed is how many groups a message names.
const maxNamed = 3

// grant counts a pod as granted.
func (c *count) grant(r Request, p *Pod) {
	if c.granted[p.UID] {
		return
	}
	if c.available(p) {
		g := c.group(p.Group)
		g.Available--
		g.Disrupted++
		c.names = nil
	}
	c.granted[p.UID] = true
	c.pending++
	c.state.LastGrant = c.now
	group := p.Group
	if !p.Placed {
		group = UnknownGroup
	}
	c.state.Grants = append(c.state.Grants, Grant{Pod: p.UID, Request: r.UID, Owner: p.Owner, Group: group, At: c.now})
}

// end completes the state after all requests.
func (c *count) end() State {
	names := make([]string, 0, len(c.groups))
	for name := range c.groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c.state.Groups = append(c.state.Groups, *c.groups[name])
	}
	c.state.Allowed = c.free()
	slices.SortFunc(c.state.Grants, func(a, b Grant) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Pod, b.Pod)) })
	slices.SortFunc(c.state.Gone, func(a, b Gone) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Owner, b.Owner)) })
	return c.state
}

// free is how many available pods could be granted now.
func (c *count) free() int {
	if reason, _, _ := c.closed(); reason != "" {
		return 0
	}
	if !c.open {
		return c.ready()
	}
	var disrupted, others []int
	for _, g := range c.groups {
		n := min(max(c.allowed(g)-g.Disrupted-c.unknown(), 0), g.Available)
		if g.Disrupted > 0 {
			disrupted = append(disrupted, n)
		} else {
			others = append(others, n)
		}
	}
	slices.SortFunc(others, func(a, b int) int { return cmp.Compare(b, a) })
	if c.Rules.Grouped {
		if len(disrupted) > c.Rules.MaxGroups {
			return 0
		}
		others = others[:min(len(others), c.Rules.MaxGroups-len(disrupted))]
	}
	sum := 0
	for _, n := range slices.Concat(disrupted, others) {
		sum += n
	}
	sum = min(sum, MaxGrants-len(c.state.Grants))
	if c.Rules.MinInterval > 0 {
		sum = min(sum, 1)
	}
	return sum
}

// ready is how many pods are available.
func (c *count) ready() (n int) {
	for _, g := range c.groups {
		n += g.Available
	}
	return n
}

// closed says why the budget grants nothing to anybody, empty if it may.
func (c *count) closed() (reason, message string, until time.Time) {
	switch {
	case c.Rules.Refused != "":
		return v1alpha1.ReasonNotAccepted, "its spec is not accepted (" + c.Rules.Refused + ")", time.Time{}
	case !c.open && c.Rules.Continue:
		return "", "", time.Time{}
	case c.never:
		return v1alpha1.ReasonOutsideWindow, "no window opens any more", time.Time{}
	case !c.open:
		at := c.state.Opening.Start
		return v1alpha1.ReasonOutsideWindow, "no window is open, the next one opens at " + at.Format(time.RFC3339), at
	case c.Blocked != "":
		return v1alpha1.ReasonConditionFalse, c.Blocked, time.Time{}
	case c.nothing():
		return v1alpha1.ReasonNothingAllowed, "it allows no pod to be unavailable", time.Time{}
	case len(c.state.Grants) >= MaxGrants:
		return v1alpha1.ReasonGrantsFull, "it has granted as many evictions as it may at a time, whose places are not filled again", time.Time{}
	}
	last := c.state.LastGrant
	if c.LastLeft.After(last) { // It is between evictions, and not only between grants.
		last = c.LastLeft
	}
	if next := last.Add(c.Rules.MinInterval); c.Rules.MinInterval > 0 && c.now.Before(next) {
		return v1alpha1.ReasonMinInterval, "another eviction was granted a moment ago, the next one follows", next
	}
	if c.Rules.MinInterval > 0 && c.pending > 0 {
		return v1alpha1.ReasonMinInterval, "another eviction was granted, and its pod has not begun to leave", time.Time{}
	}
	return "", "", time.Time{}
}
