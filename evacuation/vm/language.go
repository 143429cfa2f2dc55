package vm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// templateMark begins an expression in a template. It has no meaning anywhere else.
const templateMark = "${"

// noTemplate refuses what is written as if it stood in a template: an expression in
// ${}, or one within a string literal, whose value would be written as it is.
func noTemplate(field, text, instead string) error {
	if !strings.Contains(text, templateMark) {
		return nil
	}
	return fmt.Errorf("%s: %q has a %s, which means something only in templates and bodies: %s", field, text, templateMark, instead)
}

// wrongBranch refuses an expression whose type is known only at run time, if one of
// its branches can be told to have a wrong one: it would fail for some pod.
func wrongBranch(field string, checked *cel.Ast, want []*cel.Type) error {
	if len(want) == 0 {
		return nil
	}
	native := checked.NativeRep()
	for _, branch := range branches(native.Expr()) {
		if got := native.GetType(branch.ID()); !allowed(got, want) {
			return fmt.Errorf("%s must be of type %s, but can be %s: %s", field, typeNames(want), got, remedy(got, want))
		}
	}
	return nil
}

// branches are the expressions one of which is the value of an expression.
func branches(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind {
		return []ast.Expr{e}
	}
	call := e.AsCall()
	switch args := call.Args(); {
	case call.FunctionName() == operators.Conditional && len(args) == 3:
		return slices.Concat(branches(args[1]), branches(args[2]))
	case call.FunctionName() == "dyn" && len(args) == 1:
		return branches(args[0])
	case call.FunctionName() == "orValue" && call.IsMemberFunction() && len(args) == 1:
		return append([]ast.Expr{e}, branches(args[0])...)
	default:
		return []ast.Expr{e}
	}
}

// remedy says what makes a value of one type one of another.
func remedy(got *cel.Type, want []*cel.Type) string {
	boolean := slices.ContainsFunc(want, func(t *cel.Type) bool { return t.IsExactType(cel.BoolType) })
	optional := got.Kind() == cel.OpaqueKind && got.DeclaredTypeName() == "optional_type"
	switch {
	case optional && boolean:
		return "say what counts when it is missing, as with .orValue(false)"
	case optional:
		return "say what counts when it is missing, as with .orValue('')"
	case boolean:
		return "compare it with something, as with == 'x'"
	default:
		return "give a value of that type, as with string(x)"
	}
}
