package vm

import (
	"maps"
	"slices"
	"strings"
)

// tree is a set of paths into an object. A leaf includes everything below it.
type tree map[string]tree

// alwaysKept are the fields that we read ourselves.
func alwaysKept() tree {
	kept := tree{"apiVersion": nil, "kind": nil}
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels"} {
		kept.add([]string{"metadata", name})
	}
	return kept
}

// add adds a path; the empty path adds everything, which is a nil tree.
func (t tree) add(path []string) {
	for i, name := range path {
		below, known := t[name]
		if known && below == nil {
			return // All of it is in already.
		}
		if i == len(path)-1 {
			t[name] = nil
			return
		}
		if below == nil {
			below = tree{}
			t[name] = below
		}
		t = below
	}
}

// prune copies what the tree has of an object; nil is everything. The values are
// shared with the original.
func prune(object map[string]any, t tree) map[string]any {
	if t == nil {
		return object
	}
	kept := make(map[string]any, len(t))
	for name, below := range t {
		value, ok := object[name]
		if !ok {
			continue
		}
		if inner, ok := value.(map[string]any); ok {
			value = prune(inner, below)
		}
		kept[name] = value
	}
	return kept
}

// merge is the union of trees; nil is everything.
func merge(a, b tree) tree {
	if a == nil || b == nil {
		return nil
	}
	union := maps.Clone(a)
	for name, below := range b {
		if other, ok := union[name]; ok {
			below = merge(other, below)
		}
		union[name] = below
	}
	return union
}

// String lists the paths, sorted: equal strings are equal sets.
func (t tree) String() string {
	if t == nil {
		return "*"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if below := t[name]; below != nil {
			name += "{" + below.String() + "}"
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, ",")
}
