package registration

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// place is what selectors say of a pod's labels and of those of its namespace.
type place struct{ pods, namespaces space }

// space is what a selector says of each label that it names. All others may be anything.
type space map[string]allowed

// allowed is what a label may be.
type allowed struct {
	// The value is one of these, or, with but, any but these.
	values sets.Set[string]
	but    bool
	// absent: there may be no such label.
	absent bool
}

func placeOf(pods, namespaces labels.Selector) place {
	return place{spaceOf(pods), spaceOf(namespaces)}
}

// spaceOf is empty for a selector that selects all. labels.Nothing is not asked about: no
// LabelSelector of an object becomes that.
func spaceOf(selector labels.Selector) space {
	requirements, _ := selector.Requirements()
	all := space{}
	for _, r := range requirements {
		all[r.Key()] = all.of(r.Key()).and(allowedBy(r))
	}
	return all
}

// of is what the space says of a label.
func (s space) of(key string) allowed {
	if a, ok := s[key]; ok {
		return a
	}
	return allowed{but: true, absent: true}
}

func allowedBy(r labels.Requirement) allowed {
	values := sets.New(r.Values().List()...)
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return allowed{values: values}
	case selection.NotIn, selection.NotEquals:
		return allowed{values: values, but: true, absent: true}
	case selection.DoesNotExist:
		return allowed{absent: true}
	default: // Exists. The others cannot come from a LabelSelector.
		return allowed{but: true}
	}
}

// and is what both allow.
func (a allowed) and(b allowed) allowed {
	both := allowed{absent: a.absent && b.absent}
	switch {
	case a.but && b.but:
		both.but, both.values = true, a.values.Union(b.values)
	case a.but:
		both.values = b.values.Difference(a.values)
	case b.but:
		both.values = a.values.Difference(b.values)
	default:
		both.values = a.values.Intersection(b.values)
	}
	return both
}

// within reports whether b allows all that a allows.
func (a allowed) within(b allowed) bool {
	switch {
	case a.absent && !b.absent:
		return false
	case a.but && b.but:
		return a.values.IsSuperset(b.values)
	case a.but:
		return false // There are more values than anybody lists.
	case b.but:
		return a.values.Intersection(b.values).Len() == 0
	default:
		return b.values.IsSuperset(a.values)
	}
}

// empty reports whether no label is as the space says.
func (s space) empty() bool {
	for _, a := range s {
		if !a.but && a.values.Len() == 0 && !a.absent {
			return true
		}
	}
	return false
}

// within reports whether all labels of s are labels of t, too.
func (s space) within(t space) bool {
	for key, a := range t {
		if !s.of(key).within(a) {
			return false
		}
	}
	return true
}

func (p place) empty() bool { return p.pods.empty() || p.namespaces.empty() }

func (p place) within(q place) bool {
	return p.pods.within(q.pods) && p.namespaces.within(q.namespaces)
}

// circular reports whether pods that wait for others surely wait for each other: all of them
// are among those others, or all of those others are among them. Where they only overlap, that
// depends on the pods: it is found out on the node.
func circular(own, others place) bool {
	return !own.empty() && !others.empty() && (own.within(others) || others.within(own))
}
