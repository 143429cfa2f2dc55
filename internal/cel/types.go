package cel

import (
	"fmt"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// mismatch says that an expression has none of the wanted types.
type mismatch struct {
	want []*Type
	got  *Type
	// branch: only one of its branches has that type.
	branch bool
}

func (m *mismatch) Error() string {
	verb := "is"
	if m.branch {
		verb = "can be"
	}
	names := make([]string, len(m.want))
	for i, t := range m.want {
		names[i] = t.String()
	}
	return fmt.Sprintf("must be of type %s, but %s %s", strings.Join(names, " or "), verb, m.got)
}

// remedy says what makes a value of that type one of a wanted type.
func (m *mismatch) remedy() string {
	boolean := slices.ContainsFunc(m.want, func(t *Type) bool { return t.IsExactType(BoolType) })
	optional := m.got.Kind() == celgo.OpaqueKind && m.got.DeclaredTypeName() == "optional_type"
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

// mismatch is nil if the expression may have one of the types. One whose type is
// known only at run time may not, if one of its branches can be told to have a wrong
// type: it would fail for some object.
func (e *Env) mismatch(checked *celgo.Ast, want []*Type) *mismatch {
	if len(want) == 0 {
		return nil
	}
	if got := checked.OutputType(); !e.allowed(got, want) {
		return &mismatch{want: want, got: got}
	}
	native := checked.NativeRep()
	for _, branch := range branches(native.Expr()) {
		if got := native.GetType(branch.ID()); !e.allowed(got, want) {
			return &mismatch{want: want, got: got, branch: true}
		}
	}
	return nil
}

func (e *Env) allowed(got *Type, want []*Type) bool {
	static := e.limit > 0
	if !static && got.IsExactType(celgo.DynType) {
		return true
	}
	return slices.ContainsFunc(want, func(t *Type) bool {
		return got.IsExactType(t) || !static && got.IsExactType(celgo.NullableType(t))
	})
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
