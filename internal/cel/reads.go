package cel

import (
	"slices"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// uses are the places where an expression names a variable.
func uses(checked *celgo.Ast, variable string) []ast.NavigableExpr {
	identifiers := ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), ast.KindMatcher(ast.IdentKind))
	return slices.DeleteFunc(identifiers, func(e ast.NavigableExpr) bool { return e.AsIdent() != variable })
}

// Reads are the paths of a variable that an expression reads: what follows the
// variable as field names, up to the first thing that is something else, such as
// a loop over a list. The second result tells that the variable is used as a
// whole.
func (e Expression) Reads(variable string) (paths [][]string, whole bool) {
	if !e.Given() {
		return nil, false
	}
	return reads(e.checked, variable)
}

func reads(checked *celgo.Ast, variable string) (paths [][]string, whole bool) {
	for _, use := range uses(checked, variable) {
		path := pathFrom(use)
		if len(path) == 0 {
			return nil, true
		}
		paths = append(paths, path)
	}
	return paths, false
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
