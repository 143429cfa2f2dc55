package vm

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/internal/text"
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

// env returns the environment of a scope. The pod has a type, so reading what we do
// not keep of it does not compile; the objects of platforms have none, so the cost of
// an expression cannot be estimated and is limited at run time alone.
func env(s scope) (*cel.Env, error) {
	key := strings.Join(s, ",")
	environments.Lock()
	defer environments.Unlock()
	if made, ok := environments.of[key]; ok {
		return made, nil
	}
	var variables []cel.Variable
	for _, name := range s {
		variable := cel.Variable{Name: name}
		switch name {
		case varPod:
			variable.Type = podcache.Type()
		case varRequest:
			variable.Type = requestType()
		}
		variables = append(variables, variable)
	}
	made, err := cel.NewEnv(variables)
	if err != nil {
		return nil, err
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
		"deadline": apiservercel.StringType,
	} {
		fields[name] = apiservercel.NewDeclField(name, of, true, nil, nil)
	}
	return apiservercel.NewObjectType("drawbridge.Request", fields)
}

// requestVar is the value of the variable request. A deadline of zero is none.
func requestVar(request types.NamespacedName, requesters, callers []string, deadline time.Time) map[string]any {
	until := ""
	if !deadline.IsZero() {
		until = deadline.UTC().Format(time.RFC3339)
	}
	return map[string]any{
		"name": request.Name, "namespace": request.Namespace, "deadline": until,
		"requesters": append([]string{}, requesters...), "callers": append([]string{}, callers...),
	}
}

// compile compiles an expression of a scope.
func compile(field, source string, s scope, want ...*cel.Type) (cel.Expression, error) {
	e, err := env(s)
	if err != nil {
		return cel.Expression{}, err
	}
	return e.Expression(field, source, want...)
}

// oneLine makes a text of one line that is not too long.
func oneLine(s string) string { return text.OneLine(s, 600) }
