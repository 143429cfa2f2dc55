package vm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
)

// Variables of the expressions.
const (
	varPod       = "pod"
	varWorkload  = "workload"
	varConfig    = "config"
	varRequest   = "request"
	varMigration = "migration"
)

// scope says which variables an expression may use.
type scope []string

var (
	// podScope is for what must be known before the workload is found.
	podScope = scope{varPod}
	// workloadScope is for questions about a pod and its workload, which are asked
	// before there is a request, too.
	workloadScope = scope{varPod, varWorkload, varConfig}
	// writeScope is for what is written, which is never without a request.
	writeScope = scope{varPod, varWorkload, varConfig, varRequest}
	// migrationScope is for questions about a migration alone.
	migrationScope = scope{varMigration}
	// nodeScope is for the node that a workload would leave.
	nodeScope = scope{varWorkload}
)

// environments are made once per scope: that takes some milliseconds.
var environments = struct {
	sync.Mutex
	of map[string]*cel.Env
}{of: map[string]*cel.Env{}}

// env returns the environment of a scope. Its dialect is the one that the oldest
// supported release (Kubernetes 1.30) has for a ValidatingAdmissionPolicy. The pod
// has a type, so reading what we do not keep of it does not compile; the objects
// of platforms have none.
func env(s scope) (*cel.Env, error) {
	key := strings.Join(s, ",")
	environments.Lock()
	defer environments.Unlock()
	if made, ok := environments.of[key]; ok {
		return made, nil
	}
	options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 30)}
	for _, name := range s {
		switch name {
		case varPod:
			pod := podcache.Type()
			options.EnvOptions = append(options.EnvOptions, cel.Variable(name, pod.CelType()))
			options.DeclTypes = append(options.DeclTypes, pod)
		case varRequest:
			request := requestType()
			options.EnvOptions = append(options.EnvOptions, cel.Variable(name, request.CelType()))
			options.DeclTypes = append(options.DeclTypes, request)
		default:
			options.EnvOptions = append(options.EnvOptions, cel.Variable(name, cel.DynType))
		}
	}
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 30)).Extend(options)
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	made, err := set.Env(environment.NewExpressions)
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	environments.of[key] = made
	return made, nil
}

// requestType declares the variable request.
func requestType() *apiservercel.DeclType {
	names := apiservercel.NewListType(apiservercel.StringType, v1alpha1.MaxRequesters)
	fields := map[string]*apiservercel.DeclField{}
	for name, of := range map[string]*apiservercel.DeclType{
		"name": apiservercel.StringType, "namespace": apiservercel.StringType, "requesters": names, "callers": names,
	} {
		fields[name] = apiservercel.NewDeclField(name, of, true, nil, nil)
	}
	return apiservercel.NewObjectType("drawbridge.Request", fields)
}

// expression is a compiled expression; the zero value is one that was not given.
// It is safe for concurrent use.
type expression struct {
	// field is where it stands, for people: "spec.strategy".
	field   string
	program cel.Program
	checked *cel.Ast
}

func (e expression) given() bool { return e.program != nil }

// compile compiles an expression whose result may have one of the types; none
// means any. What is only known at run time (dyn) is checked then. The cost of
// expressions over objects without a type cannot be estimated, so it is limited
// at run time, as for a ValidatingAdmissionPolicy over dyn: about 0.1 s.
func compile(field, source string, s scope, want ...*cel.Type) (expression, error) {
	if source == "" {
		return expression{}, nil
	}
	if err := noTemplate(field, source, "write the expression alone"); err != nil {
		return expression{}, err
	}
	e, err := env(s)
	if err != nil {
		return expression{}, err
	}
	checked, issues := e.Compile(source)
	if err := problems(issues); err != nil {
		return expression{}, fmt.Errorf("%s does not compile: %w", field, err)
	}
	if !allowed(checked.OutputType(), want) {
		return expression{}, fmt.Errorf("%s must be of type %s, but is %s: %s", field, typeNames(want), checked.OutputType(), remedy(checked.OutputType(), want))
	}
	if err := wrongBranch(field, checked, want); err != nil {
		return expression{}, err
	}
	program, err := e.Program(checked, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return expression{}, fmt.Errorf("%s: make the program: %w", field, err)
	}
	return expression{field: field, program: program, checked: checked}, nil
}

func allowed(got *cel.Type, want []*cel.Type) bool {
	if len(want) == 0 || got.IsExactType(cel.DynType) {
		return true
	}
	for _, t := range want {
		if got.IsExactType(t) || got.IsExactType(cel.NullableType(t)) {
			return true
		}
	}
	return false
}

func typeNames(want []*cel.Type) string {
	var names []string
	for _, t := range want {
		names = append(names, t.String())
	}
	return strings.Join(names, " or ")
}

// problems is what the compiler found, in one line.
func problems(issues *cel.Issues) error {
	if issues.Err() == nil {
		return nil
	}
	var texts []string
	for _, err := range issues.Errors() {
		texts = append(texts, fmt.Sprintf("line %d, column %d: %s", err.Location.Line(), err.Location.Column()+1, oneLine(err.Message)))
	}
	return errors.New(strings.Join(texts, "; "))
}

// EvaluationError says that an expression failed for some objects. It is no fault
// of ours, and trying again helps only when an object or the policy changes.
type EvaluationError struct {
	// Field is where the expression stands.
	Field string
	Err   error
}

func (e *EvaluationError) Error() string { return e.Field + ": " + oneLine(e.Err.Error()) }

func (e *EvaluationError) Unwrap() error { return e.Err }

// eval evaluates an expression.
func (e expression) eval(ctx context.Context, vars map[string]any) (ref.Val, error) {
	result, _, err := e.program.ContextEval(ctx, vars)
	if err != nil {
		return nil, &EvaluationError{Field: e.field, Err: err}
	}
	return result, nil
}

func (e expression) wrongType(got ref.Val, want string) error {
	return &EvaluationError{Field: e.field, Err: fmt.Errorf("the result must be of type %s, but is %s", want, got.Type().TypeName())}
}

// boolean evaluates an expression of type bool. One that was not given is the
// fallback.
func (e expression) boolean(ctx context.Context, vars map[string]any, fallback bool) (bool, error) {
	if !e.given() {
		return fallback, nil
	}
	result, err := e.eval(ctx, vars)
	if err != nil {
		return false, err
	}
	value, ok := result.Value().(bool)
	if !ok {
		return false, e.wrongType(result, "bool")
	}
	return value, nil
}

// text evaluates an expression of type string.
func (e expression) text(ctx context.Context, vars map[string]any) (string, error) {
	if !e.given() {
		return "", nil
	}
	result, err := e.eval(ctx, vars)
	if err != nil {
		return "", err
	}
	value, ok := result.Value().(string)
	if !ok {
		return "", e.wrongType(result, "string")
	}
	return value, nil
}

// moment evaluates an expression of a time: timestamp, string in RFC 3339, or null
// and the empty string for none.
func (e expression) moment(ctx context.Context, vars map[string]any) (time.Time, error) {
	if !e.given() {
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
			return time.Time{}, &EvaluationError{Field: e.field, Err: err}
		}
		return parsed, nil
	default:
		return time.Time{}, e.wrongType(result, "timestamp")
	}
}

// value evaluates an expression to what JSON can hold.
func (e expression) value(ctx context.Context, vars map[string]any) (any, error) {
	result, err := e.eval(ctx, vars)
	if err != nil {
		return nil, err
	}
	value, err := native(result)
	if err != nil {
		return nil, &EvaluationError{Field: e.field, Err: err}
	}
	return value, nil
}

// native turns a CEL value into one of encoding/json. Times become RFC 3339.
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

// oneLine makes a text of one line that is not too long.
func oneLine(text string) string {
	const most = 600
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		line = append(line[:most-1], '…')
	}
	return string(line)
}
