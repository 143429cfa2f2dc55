package vm

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// tree is a set of paths into an object. A leaf stands for all that is below it.
type tree map[string]tree

// alwaysKept are the fields that we read ourselves.
func alwaysKept() tree {
	kept := tree{"apiVersion": nil, "kind": nil}
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels"} {
		kept.add([]string{"metadata", name})
	}
	return kept
}

// add adds a path; the empty one adds everything, which a nil tree stands for.
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

// paths are those of a variable that an expression reads: what follows the
// variable as field names, up to the first thing that is something else, such as
// a loop over a list. The second result tells that the variable is used as a
// whole.
func (e expression) paths(variable string) (found [][]string, whole bool) {
	if !e.given() {
		return nil, false
	}
	root := ast.NavigateAST(e.checked.NativeRep())
	for _, identifier := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		if identifier.AsIdent() != variable {
			continue
		}
		path := pathFrom(identifier)
		if len(path) == 0 {
			return nil, true
		}
		found = append(found, path)
	}
	return found, false
}

func pathFrom(node ast.NavigableExpr) []string {
	var path []string
	for {
		parent, ok := node.Parent()
		if !ok {
			return path
		}
		name, ok := fieldOf(parent, node)
		if !ok {
			return path
		}
		path = append(path, name)
		node = parent
	}
}

// fieldOf is the field that parent takes out of node: a.b, has(a.b), a.?b, a["b"]
// or a[?"b"].
func fieldOf(parent, node ast.NavigableExpr) (string, bool) {
	switch parent.Kind() {
	case ast.SelectKind:
		return parent.AsSelect().FieldName(), true
	case ast.CallKind:
		call := parent.AsCall()
		takes := []string{operators.Index, operators.OptIndex, operators.OptSelect}
		if !slices.Contains(takes, call.FunctionName()) || len(call.Args()) != 2 || call.Args()[0].ID() != node.ID() {
			return "", false
		}
		if call.Args()[1].Kind() != ast.LiteralKind {
			return "", false
		}
		name, ok := call.Args()[1].AsLiteral().(types.String)
		return string(name), ok
	default:
		return "", false
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
