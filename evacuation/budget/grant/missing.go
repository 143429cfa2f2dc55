package grant

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// owner is what is known of the pods of one.
type owner struct {
	// placed are the pods that are to stay and whose group is known, ready those of them that are.
	placed, ready int
	// groups of all pods, also of those that leave or have left.
	groups map[string]bool
	left   []departed
}

// departed is a pod that is leaving, or one that has left and the grant that it had.
type departed struct {
	Gone
	leaving bool
	grant   *Grant
	// filled: another pod of the owner has come to the group since.
	filled bool
}

func ownerOf(owners map[types.UID]*owner, uid types.UID) *owner {
	o := owners[uid]
	if o == nil {
		o = &owner{groups: map[string]bool{}}
		owners[uid] = o
	}
	return o
}

// missing puts what is missing of the owners' pods into the groups that pods have left.
func (c *count) missing(owners map[types.UID]*owner, left []Grant) {
	for i := range left {
		g := &left[i]
		o := ownerOf(owners, g.Owner)
		o.had(g.Group)
		o.left = append(o.left, departed{Gone: Gone{Owner: g.Owner, Group: g.Group, At: g.At}, grant: g})
	}
	for _, g := range c.Gone {
		o := ownerOf(owners, g.Owner)
		o.had(g.Group)
		o.left = append(o.left, departed{Gone: g})
	}
	for uid := range c.Expected {
		ownerOf(owners, uid) // Also those that have no pod left.
	}
	c.fill(owners)
	for uid, o := range owners {
		expected, known := c.Expected[uid]
		known = known && uid != ""
		missing := expected - o.placed
		slices.SortFunc(o.left, leavingFirst)
		for _, l := range o.left {
			switch {
			case !known && l.leaving:
				c.miss(l.Group, 1) // Nobody replaces it: it is missed until it has gone.
				continue
			case !known || missing <= 0 || l.filled:
				// Another pod has taken its place.
				if known && l.grant != nil && l.grant.UntilReady && o.ready < expected {
					c.state.Grants = append(c.state.Grants, *l.grant)
				}
				continue
			}
			c.miss(c.placeOf(o, l.Group), 1)
			missing--
			if l.grant != nil {
				c.state.Grants = append(c.state.Grants, *l.grant)
			} else if !l.leaving {
				c.state.Gone = append(c.state.Gone, l.Gone)
			}
		}
		if known && missing > 0 {
			c.miss(c.placeOf(o, UnknownGroup), missing)
		}
	}
}

// leavingFirst orders what may be missing: what is leaving, then what left last.
func leavingFirst(a, b departed) int {
	switch {
	case a.leaving && !b.leaving:
		return -1
	case !a.leaving && b.leaving:
		return 1
	}
	return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Group, b.Group))
}

// arrival is a pod that may have taken the place of another one.
type arrival struct {
	group   string
	created time.Time
	// left is its index among those that have left, -1 if it stays.
	left int
}

// fill notes which places have been taken again by pods of the same groups. It matters where
// an owner has several groups and some of its places are still empty.
func (c *count) fill(owners map[types.UID]*owner) {
	came := map[types.UID][]arrival{}
	for uid, o := range owners {
		if c.Expected[uid] > o.placed && len(o.left) > 0 && (c.Rules.Spread || len(o.groups) > 1) {
			came[uid] = []arrival{}
		}
	}
	if len(came) == 0 {
		return
	}
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Placed && !p.Leaving && came[p.Owner] != nil {
			came[p.Owner] = append(came[p.Owner], arrival{p.Group, p.Created, -1})
		}
	}
	for uid, arrivals := range came {
		fill(owners[uid].left, arrivals)
	}
}

// late is how late one may hear that a pod has left. The one in its place may be older then.
const late = 10 * time.Second

// fill lets each arrival take the place of one that left before.
func fill(left []departed, arrivals []arrival) {
	slices.SortFunc(left, func(a, b departed) int { return a.At.Compare(b.At) })
	for i := range left {
		arrivals = append(arrivals, arrival{left[i].Group, left[i].Created, i})
	}
	arrivals = slices.DeleteFunc(arrivals, func(a arrival) bool { return a.created.Before(left[0].At.Add(-late)) })
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return a.created.Compare(b.created) })
	for i := range left {
		since := left[i].At.Add(-late)
		if j := slices.IndexFunc(arrivals, func(a arrival) bool {
			return a.group == left[i].Group && a.left != i && !a.created.Before(since)
		}); j >= 0 {
			left[i].filled = true
			arrivals = slices.Delete(arrivals, j, j+1)
		}
	}
}

// had notes that an owner has or had a pod in a group.
func (o *owner) had(group string) {
	if group != UnknownGroup {
		o.groups[group] = true
	}
}

// placeOf is the group that a pod of an owner is missing in: the one that it has left. If
// nobody knows which, it is that of the owner's other pods if they are always in one.
func (c *count) placeOf(o *owner, left string) string {
	switch {
	case !c.Rules.Grouped:
		return "" // Whatever was recorded while there were groups.
	case left == UnknownGroup && !c.Rules.Spread && len(o.groups) == 1:
		for name := range o.groups {
			return name
		}
	}
	return left
}

func (c *count) miss(group string, n int) {
	g := c.group(group)
	g.Expected += n
	g.Disrupted += n
}
