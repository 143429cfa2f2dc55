package registration

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/drawbridge-dev/drawbridge/internal/podcache"
)

// Variables of a matchCondition.
const (
	// podVariable is the pod, as internal/podcache keeps it.
	podVariable = "object"
	// namespaceVariable is the pod's namespace with its name, labels and
	// annotations, or null while it is not known.
	namespaceVariable = "namespaceObject"
)

const (
	// staticCostLimit is the most that an expression may cost by the estimate,
	// which is that of the rules in a CRD (k8s.io/apiextensions-apiserver v0.37.2,
	// pkg/apis/apiextensions/validation, StaticEstimatedCostLimit). What it really
	// costs is limited by celconfig.PerCallLimit, about 0.1 s, and for all
	// conditions of a registration together by podBudget.
	staticCostLimit = 10_000_000
	// podBudget is the limit for matchConditions of webhooks.
	podBudget = celconfig.RuntimeCELCostBudgetMatchConditions
)

// expressions compiles matchConditions. Its dialect is the one that the oldest
// supported release (Kubernetes 1.30) has for a ValidatingAdmissionPolicy, so that
// a registration means the same wherever it is applied.
type expressions struct {
	env   *cel.Env
	sizes sizes
}

// theExpressions are made once: that takes some milliseconds.
var theExpressions = sync.OnceValues(newExpressions)

func newExpressions() (*expressions, error) {
	pod, namespace := podcache.Type(), podcache.NamespaceType()
	release := version.MajorMinor(1, 30)
	set, err := environment.MustBaseEnvSet(release).Extend(environment.VersionedOptions{
		IntroducedVersion: release,
		EnvOptions: []cel.EnvOption{
			cel.Variable(podVariable, pod.CelType()),
			cel.Variable(namespaceVariable, namespace.CelType()),
		},
		DeclTypes: []*apiservercel.DeclType{pod, namespace},
	})
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	env, err := set.Env(environment.NewExpressions)
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	return &expressions{env: env, sizes: sizes{podVariable: pod, namespaceVariable: namespace}}, nil
}

// expression is a compiled matchCondition. It is safe for concurrent use.
type expression struct {
	program cel.Program
	// namespace: it looks at namespaceObject.
	namespace bool
}

// compile compiles one expression. The error is one line for people.
func (e *expressions) compile(source string) (expression, error) {
	checked, issues := e.env.Compile(source)
	if err := problems(issues); err != nil {
		return expression{}, err
	}
	if !checked.OutputType().IsExactType(cel.BoolType) {
		return expression{}, fmt.Errorf("it must be of type bool, but is %s", checked.OutputType())
	}
	cost, err := e.env.EstimateCost(checked, &library.CostEstimator{SizeEstimator: e.sizes})
	if err != nil {
		return expression{}, fmt.Errorf("estimate its cost: %w", err)
	}
	if cost.Max > staticCostLimit {
		return expression{}, fmt.Errorf("it may cost %s, more than the %d allowed: compare less or nest fewer loops", costText(cost.Max), staticCostLimit)
	}
	program, err := e.env.Program(checked, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return expression{}, fmt.Errorf("make the program: %w", err)
	}
	return expression{program: program, namespace: mentions(checked, namespaceVariable)}, nil
}

func costText(cost uint64) string {
	if cost == math.MaxUint64 {
		return "any amount"
	}
	return fmt.Sprint(cost)
}

// problems is what the compiler found, without its drawings of several lines.
func problems(issues *cel.Issues) error {
	if issues.Err() == nil {
		return nil
	}
	var texts []string
	for _, err := range issues.Errors() {
		texts = append(texts, fmt.Sprintf("line %d, column %d: %s", err.Location.Line(), err.Location.Column()+1, strings.Join(strings.Fields(err.Message), " ")))
	}
	return errors.New(strings.Join(texts, "; "))
}

// mentions reports whether an expression uses a variable.
func mentions(checked *cel.Ast, variable string) bool {
	identifiers := ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), ast.KindMatcher(ast.IdentKind))
	for _, identifier := range identifiers {
		if identifier.AsIdent() == variable {
			return true
		}
	}
	return false
}

// evaluate answers the expression and says what that cost.
func (e expression) evaluate(in *celInput) (match bool, cost int64, err error) {
	variables, err := in.variables()
	if err != nil {
		return false, 0, err
	}
	result, details, err := e.program.Eval(variables)
	if details != nil && details.ActualCost() != nil {
		cost = int64(min(*details.ActualCost(), math.MaxInt64))
	}
	if err != nil {
		return false, cost, err
	}
	match, ok := result.Value().(bool)
	if !ok {
		return false, cost, fmt.Errorf("the result is of type %s", result.Type().TypeName())
	}
	return match, cost, nil
}

// celInput is what the expressions of all registrations see of one pod. It is
// made when the first of them asks.
type celInput struct {
	pod       *corev1.Pod
	namespace *corev1.Namespace // Nil while not known.
	made      map[string]any
}

func (in *celInput) variables() (map[string]any, error) {
	if in.made != nil {
		return in.made, nil
	}
	// A pod that was read live gives the same answers as one from the cache.
	slim, err := podcache.Transform(in.pod)
	if err != nil {
		return nil, fmt.Errorf("reduce the pod: %w", err)
	}
	pod, err := runtime.DefaultUnstructuredConverter.ToUnstructured(slim)
	if err != nil {
		return nil, fmt.Errorf("convert the pod: %w", err)
	}
	made := map[string]any{podVariable: pod, namespaceVariable: nil}
	if in.namespace != nil {
		made[namespaceVariable] = namespaceValue(in.namespace)
	}
	in.made = made
	return made, nil
}

// namespaceValue leaves out what is empty, as JSON does: has() tells.
func namespaceValue(namespace *corev1.Namespace) map[string]any {
	metadata := map[string]any{"name": namespace.Name}
	if len(namespace.Labels) > 0 {
		metadata["labels"] = namespace.Labels
	}
	if len(namespace.Annotations) > 0 {
		metadata["annotations"] = namespace.Annotations
	}
	return map[string]any{"metadata": metadata}
}

// sizes tells the cost estimate how large the variables can be.
type sizes map[string]*apiservercel.DeclType

// EstimateSize follows the path of the node through the declared types. What has
// no path is of unknown size, which the estimate takes for unlimited.
func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	if len(path) == 0 {
		return nil
	}
	at, ok := s[path[0]]
	if !ok {
		return nil
	}
	for _, step := range path[1:] {
		switch step {
		case "@items", "@values":
			at = at.ElemType
		case "@keys":
			at = at.KeyType
		default:
			field, ok := at.FindField(step)
			if !ok {
				return nil
			}
			at = field.Type
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(max(at.MaxElements, 0))}
}

// EstimateCallCost leaves every function to the library.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
