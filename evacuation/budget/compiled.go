package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

// varConfig is the variable of the conditions.
const varConfig = "config"

// environment is made once: that takes some milliseconds.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv([]cel.Variable{{Name: varConfig}})
})

// compiled is one generation of a budget, compiled. It never changes.
type compiled struct {
	key        types.NamespacedName
	uid        types.UID
	generation int64
	rules      grant.Rules
	selector   labels.Selector
	// podLabel or nodeLabel has the group; both are empty without groups.
	podLabel, nodeLabel string
	conditions          []condition
	// config is what the conditions read, nil if nothing.
	config *waitfor.Ref
	// evicts: a pod that a PodDisruptionBudget can never let go is deleted, after that time.
	evicts bool
	after  time.Duration
	// problem is what is wrong with the spec, nil if nothing is. Its pods are held.
	problem error
}

type condition struct {
	name       string
	expression cel.Expression
}

// compile compiles a budget.
func compile(from *v1alpha1.EvictionBudget) *compiled {
	p := &compiled{key: types.NamespacedName{Namespace: from.Namespace, Name: from.Name}, uid: from.UID, generation: from.Generation}
	spec := &from.Spec
	if spec.GroupBy != nil {
		p.podLabel, p.nodeLabel = spec.GroupBy.PodLabel, spec.GroupBy.NodeLabel
	}
	var errs []error
	p.rules, p.selector, errs = grant.RulesOf(spec)
	refuse := func(reason string, err error) {
		if p.rules.Refused == "" {
			p.rules.Refused = reason
		}
		errs = append(errs, err)
	}
	if x := spec.Exhausted; x != nil {
		p.evicts, p.after = x.Action == v1alpha1.ExhaustedEvict, v1alpha1.DefaultExhaustedAfter
		if x.After != nil {
			p.after = x.After.Duration
		}
	}
	p.compileConditions(spec, refuse)
	p.problem = errors.Join(errs...)
	return p
}

func (p *compiled) compileConditions(spec *v1alpha1.EvictionBudgetSpec, refuse func(reason string, err error)) {
	if len(spec.Conditions) == 0 {
		return
	}
	env, err := environment()
	if err != nil {
		refuse(v1alpha1.ReasonInvalidExpression, err)
		return
	}
	for i, c := range spec.Conditions {
		expression, err := env.Expression(fmt.Sprintf("spec.conditions[%d].expression", i), c.Expression, cel.BoolType)
		if err != nil {
			refuse(v1alpha1.ReasonInvalidExpression, err)
			continue
		}
		p.conditions = append(p.conditions, condition{c.Name, expression})
	}
	if c := spec.Config; c != nil {
		p.config = &waitfor.Ref{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: p.key.Namespace, Name: c.Name}
	}
}

// maxBlocked is how much of an error a message repeats.
const maxBlocked = 500

// blocked says which condition is not true, empty if all are. Config is the object, nil if
// it does not exist.
func (p *compiled) blocked(ctx context.Context, config map[string]any) string {
	vars := map[string]any{varConfig: nil}
	if config != nil {
		vars[varConfig] = config
	}
	for _, c := range p.conditions {
		met, err := c.expression.Bool(ctx, vars, false)
		switch {
		case err != nil:
			return fmt.Sprintf("condition %s cannot be evaluated: %s", c.name, text.OneLine(err.Error(), maxBlocked))
		case !met:
			return fmt.Sprintf("condition %s is not true", c.name)
		}
	}
	return ""
}
