package cel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// Expression is a compiled expression that knows where it stands; the zero value is
// one that was not given. It is safe for concurrent use.
type Expression struct {
	// Field is where it stands, for people: "spec.strategy".
	Field   string
	program *Program
	checked *celgo.Ast
}

// Expression compiles what stands in a field, as Compile does; the empty source is
// an expression that was not given. The error begins with the field and says what to
// write instead.
func (e *Env) Expression(field, source string, want ...*Type) (Expression, error) {
	if source == "" {
		return Expression{}, nil
	}
	if err := NoTemplate(field, source, "write the expression alone"); err != nil {
		return Expression{}, err
	}
	checked, err := e.check(source)
	if err != nil {
		return Expression{}, fmt.Errorf("%s does not compile: %w", field, err)
	}
	if wrong := e.mismatch(checked, want); wrong != nil {
		return Expression{}, fmt.Errorf("%s %w: %s", field, wrong, wrong.remedy())
	}
	program, err := e.program(checked)
	if err != nil {
		return Expression{}, fmt.Errorf("%s: %w", field, err)
	}
	return Expression{Field: field, program: program, checked: checked}, nil
}

// Given reports whether there is an expression.
func (e Expression) Given() bool { return e.program != nil }

// Constant is the string that the expression is, if it is nothing but a string.
func (e Expression) Constant() (value string, ok bool) {
	if !e.Given() {
		return "", false
	}
	expr := e.checked.NativeRep().Expr()
	if expr.Kind() != ast.LiteralKind {
		return "", false
	}
	literal, ok := expr.AsLiteral().(types.String)
	return string(literal), ok
}

// EvaluationError says that an expression failed for some objects. It is no fault
// of ours, and trying again helps only when an object or the expression changes.
type EvaluationError struct {
	// Field is where the expression stands.
	Field string
	Err   error
}

// maxProblem is how much of a failure is told.
const maxProblem = 600

func (e *EvaluationError) Error() string {
	return e.Field + ": " + text.OneLine(e.Err.Error(), maxProblem)
}

func (e *EvaluationError) Unwrap() error { return e.Err }

func (e Expression) eval(ctx context.Context, vars map[string]any) (ref.Val, error) {
	result, _, err := e.program.eval(ctx, vars)
	if err != nil {
		return nil, &EvaluationError{Field: e.Field, Err: err}
	}
	return result, nil
}

func (e Expression) wrongType(got ref.Val, want string) error {
	return &EvaluationError{Field: e.Field, Err: fmt.Errorf("the result must be of type %s, but is %s", want, got.Type().TypeName())}
}

// evalTo evaluates an expression to a Go type that CEL calls by a name. One that was
// not given is the fallback.
func evalTo[T any](ctx context.Context, e Expression, vars map[string]any, fallback T, name string) (T, error) {
	var none T
	if !e.Given() {
		return fallback, nil
	}
	result, err := e.eval(ctx, vars)
	if err != nil {
		return none, err
	}
	value, ok := result.Value().(T)
	if !ok {
		return none, e.wrongType(result, name)
	}
	return value, nil
}

// Bool evaluates an expression of type bool. One that was not given is the fallback.
func (e Expression) Bool(ctx context.Context, vars map[string]any, fallback bool) (bool, error) {
	return evalTo(ctx, e, vars, fallback, "bool")
}

// Int evaluates an expression of type int. One that was not given is the fallback.
func (e Expression) Int(ctx context.Context, vars map[string]any, fallback int64) (int64, error) {
	return evalTo(ctx, e, vars, fallback, "int")
}

// Text evaluates an expression of type string. One that was not given is empty.
func (e Expression) Text(ctx context.Context, vars map[string]any) (string, error) {
	return evalTo(ctx, e, vars, "", "string")
}

// BoolOrNull evaluates a given expression of type bool or null, which is nil.
func (e Expression) BoolOrNull(ctx context.Context, vars map[string]any) (*bool, error) {
	result, err := e.eval(ctx, vars)
	if err != nil {
		return nil, err
	}
	switch value := result.Value().(type) {
	case structpb.NullValue:
		return nil, nil
	case bool:
		return &value, nil
	default:
		return nil, e.wrongType(result, "bool or null")
	}
}

// Time evaluates an expression of a time: timestamp, string in RFC 3339, or null
// and the empty string for none. One that was not given is none.
func (e Expression) Time(ctx context.Context, vars map[string]any) (time.Time, error) {
	if !e.Given() {
		return time.Time{}, nil
	}
	result, err := e.eval(ctx, vars)
	if err != nil {
		return time.Time{}, err
	}
	switch value := result.Value().(type) {
	case time.Time:
		return value, nil
	case structpb.NullValue:
		return time.Time{}, nil
	case string:
		if value == "" {
			return time.Time{}, nil
		}
		parsed, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return time.Time{}, &EvaluationError{Field: e.Field, Err: err}
		}
		return parsed, nil
	default:
		return time.Time{}, e.wrongType(result, "timestamp")
	}
}

// Value evaluates a given expression to what JSON can hold. Times become RFC 3339.
func (e Expression) Value(ctx context.Context, vars map[string]any) (any, error) {
	result, err := e.eval(ctx, vars)
	if err != nil {
		return nil, err
	}
	value, err := native(result)
	if err != nil {
		return nil, &EvaluationError{Field: e.Field, Err: err}
	}
	return value, nil
}

var jsonValue = reflect.TypeFor[*structpb.Value]()

// native turns a CEL value into one of encoding/json.
func native(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if uint64(v) > math.MaxInt64 {
			return nil, errors.New("the number is too large")
		}
		return int64(v), nil //nolint:gosec // It fits, see above.
	case types.Double:
		return float64(v), nil
	case types.Null:
		return nil, nil
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339), nil
	case types.Duration:
		return v.String(), nil
	}
	converted, err := v.ConvertToNative(jsonValue)
	if err != nil {
		return nil, fmt.Errorf("a value of type %s has no form in JSON: %w", v.Type().TypeName(), err)
	}
	message, ok := converted.(*structpb.Value)
	if !ok {
		return nil, fmt.Errorf("a value of type %s has no form in JSON", v.Type().TypeName())
	}
	return message.AsInterface(), nil
}
