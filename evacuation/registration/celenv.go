package registration

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
)

// Variables of a matchCondition.
const (
	// podVariable is the pod, as internal/podcache keeps it.
	podVariable = "object"
	// hookPodVariable is the same pod, for hooks, whose other expressions call it so.
	hookPodVariable = "pod"
	// namespaceVariable is the pod's namespace with its name, labels and
	// annotations, or null while it is not known.
	namespaceVariable = "namespaceObject"
)

const (
	// staticCostLimit is the most that an expression may cost by the estimate,
	// which is that of the rules in a CRD (k8s.io/apiextensions-apiserver v0.37.2,
	// pkg/apis/apiextensions/validation, StaticEstimatedCostLimit). What it really
	// costs is limited by internal/cel, and for all conditions of a registration
	// together by podBudget.
	staticCostLimit = 10_000_000
	// podBudget is the limit for matchConditions of webhooks.
	podBudget = cel.MatchConditionsBudget
)

// expressions compiles matchConditions.
type expressions struct{ env *cel.Env }

// theExpressions are made once: that takes some milliseconds.
var theExpressions = sync.OnceValues(func() (*expressions, error) { return newExpressions() })

// theHookExpressions are those of hooks.
var theHookExpressions = sync.OnceValues(func() (*expressions, error) {
	return newExpressions(cel.Variable{Name: hookPodVariable, Type: podcache.Type()})
})

func newExpressions(more ...cel.Variable) (*expressions, error) {
	env, err := cel.NewEnv(append([]cel.Variable{
		{Name: podVariable, Type: podcache.Type()},
		{Name: namespaceVariable, Type: podcache.NamespaceType()},
	}, more...), cel.Static(staticCostLimit))
	if err != nil {
		return nil, err
	}
	return &expressions{env: env}, nil
}

// expression is a compiled matchCondition. It is safe for concurrent use.
type expression struct {
	program *cel.Program
	// namespace: it looks at namespaceObject.
	namespace bool
}

// compile compiles one expression. The error is one line for people.
func (e *expressions) compile(source string) (expression, error) {
	program, err := e.env.Compile(source, cel.BoolType)
	if err != nil {
		return expression{}, err
	}
	return expression{program: program, namespace: program.Uses(namespaceVariable)}, nil
}

// evaluate answers the expression and says what that cost. Who intercepts a pod is
// asked without a context; the cost limit ends what takes long.
func (e expression) evaluate(in *celInput) (match bool, cost int64, err error) {
	variables, err := in.variables()
	if err != nil {
		return false, 0, err
	}
	return e.program.Bool(context.Background(), variables)
}

// celInput is what the expressions of all registrations see of one pod. It is
// made when the first of them asks.
type celInput struct {
	pod       *corev1.Pod
	namespace *corev1.Namespace // Nil while not known.
	// namespaceText is textOf the namespace.
	namespaceText string
	made          map[string]any
}

func (in *celInput) variables() (map[string]any, error) {
	if in.made != nil {
		return in.made, nil
	}
	pod, err := podcache.Object(in.pod)
	if err != nil {
		return nil, err
	}
	made := map[string]any{podVariable: pod, hookPodVariable: pod, namespaceVariable: nil}
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
