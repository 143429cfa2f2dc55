package cel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// MatchConditionsBudget is what all conditions of one object may cost together: the
// limit for the matchConditions of a webhook. A single one is limited anyway.
const MatchConditionsBudget = celconfig.RuntimeCELCostBudgetMatchConditions

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	program celgo.Program
	// reads are the variables that it names, and what it reads of each: nil is all. The tree
	// is not kept, as registries have many programs.
	reads map[string][][]string
}

// Compile compiles an expression whose result has one of the types; none means any.
// What is only known at run time (dyn) is checked then, unless the environment is
// static. The error is one line for people.
func (e *Env) Compile(source string, want ...*Type) (*Program, error) {
	checked, err := e.check(source)
	if err != nil {
		return nil, err
	}
	if wrong := e.mismatch(checked, want); wrong != nil {
		return nil, fmt.Errorf("it %w", wrong)
	}
	return e.program(checked)
}

func (e *Env) check(source string) (*celgo.Ast, error) {
	checked, issues := e.env.Compile(source)
	return checked, problems(issues)
}

// problems is what the compiler found, without its drawings of several lines.
func problems(issues *celgo.Issues) error {
	if issues.Err() == nil {
		return nil
	}
	var texts []string
	for _, err := range issues.Errors() {
		texts = append(texts, fmt.Sprintf("line %d, column %d: %s", err.Location.Line(), err.Location.Column()+1, strings.Join(strings.Fields(err.Message), " ")))
	}
	return errors.New(strings.Join(texts, "; "))
}

func (e *Env) program(checked *celgo.Ast) (*Program, error) {
	if err := e.estimate(checked); err != nil {
		return nil, err
	}
	program, err := e.env.Program(checked, celgo.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return nil, fmt.Errorf("make the program: %w", err)
	}
	made := &Program{program: program, reads: map[string][][]string{}}
	for _, v := range e.variables {
		if paths, whole := reads(checked, v); whole || len(paths) > 0 {
			made.reads[v] = paths
		}
	}
	return made, nil
}

// Uses reports whether the program uses a variable of its environment.
func (p *Program) Uses(variable string) bool {
	_, ok := p.reads[variable]
	return ok
}

// Reads is Expression.Reads.
func (p *Program) Reads(variable string) (paths [][]string, whole bool) {
	paths, ok := p.reads[variable]
	return paths, ok && paths == nil
}

// eval evaluates the program and says what that cost.
func (p *Program) eval(ctx context.Context, vars map[string]any) (result ref.Val, cost int64, err error) {
	var details *celgo.EvalDetails
	if ctx.Done() == nil { // Nothing can cancel it, so nothing has to look.
		result, details, err = p.program.Eval(vars)
	} else {
		result, details, err = p.program.ContextEval(ctx, vars)
	}
	if details != nil && details.ActualCost() != nil {
		cost = int64(min(*details.ActualCost(), math.MaxInt64))
	}
	return result, cost, err
}

// Bool evaluates a program of type bool and says what that cost, which it does for
// one that failed, too.
func (p *Program) Bool(ctx context.Context, vars map[string]any) (value bool, cost int64, err error) {
	result, cost, err := p.eval(ctx, vars)
	if err != nil {
		return false, cost, err
	}
	value, ok := result.Value().(bool)
	if !ok {
		return false, cost, fmt.Errorf("the result is of type %s", result.Type().TypeName())
	}
	return value, cost, nil
}
