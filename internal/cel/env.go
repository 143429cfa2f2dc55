// Package cel compiles and evaluates the expressions that users write into our
// objects. Their dialect is the one that the oldest supported release (Kubernetes
// 1.30) has for a ValidatingAdmissionPolicy, so that an expression means the same
// wherever it is applied. What is wrong with one is said in one line. What one costs
// is limited as there, to about 0.1 s, and ends with the context.
//
// Env.Compile makes a Program, which has no name. Env.Expression makes one that knows
// the field it stands in, and Env.Template an object with some of them.
package cel

import (
	"fmt"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Type is what the result of an expression may be.
type Type = celgo.Type

// Types of results.
var (
	BoolType      = celgo.BoolType
	IntType       = celgo.IntType
	NullType      = celgo.NullType
	StringType    = celgo.StringType
	TimestampType = celgo.TimestampType
)

// Variable is one of an environment.
type Variable struct {
	Name string
	// Type makes reading an undeclared field a mistake that the compiler finds. Nil is
	// dyn, for objects that we have no type of: then it fails at run time.
	Type *apiservercel.DeclType
}

// Option changes an environment.
type Option func(*Env)

// Static requires that all of an expression is known before it runs: the result has
// exactly one of the wanted types, and is not dyn, and by the estimate it costs at
// most limit. Only typed variables have an estimate.
func Static(limit uint64) Option { return func(e *Env) { e.limit = limit } }

// Env is what expressions may use. It is safe for concurrent use. Making one takes
// some milliseconds, so it is made once.
type Env struct {
	env *celgo.Env
	// variables are their names.
	variables []string
	sizes     sizes
	// limit of the estimated cost; zero estimates nothing.
	limit uint64
}

// NewEnv makes the environment with these variables.
func NewEnv(variables []Variable, options ...Option) (*Env, error) {
	release := version.MajorMinor(1, 30)
	made := &Env{sizes: sizes{}}
	declared := environment.VersionedOptions{IntroducedVersion: release}
	for _, v := range variables {
		made.variables = append(made.variables, v.Name)
		if v.Type == nil {
			declared.EnvOptions = append(declared.EnvOptions, celgo.Variable(v.Name, celgo.DynType))
			continue
		}
		declared.EnvOptions = append(declared.EnvOptions, celgo.Variable(v.Name, v.Type.CelType()))
		declared.DeclTypes = append(declared.DeclTypes, v.Type)
		made.sizes[v.Name] = v.Type
	}
	set, err := environment.MustBaseEnvSet(release).Extend(declared)
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	if made.env, err = set.Env(environment.NewExpressions); err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	for _, option := range options {
		option(made)
	}
	return made, nil
}
