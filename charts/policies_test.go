package charts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Every expression of every policy compiles on the oldest supported release and on the one
// we build with. An API server refuses a policy that does not, but passes over what it did
// not know when it took it.
func TestPoliciesCompileOnAllReleases(t *testing.T) {
	for release, v := range map[string]*version.Version{
		"Kubernetes 1.30": version.MajorMinor(1, 30),
		"Kubernetes 1.37": version.MajorMinor(1, 37),
	} {
		for name, with := range map[string]values{
			"with the default values": nil,
			"with the rest":           {"surge": values{"enabled": false}, "webhook": values{"url": "https://localhost:9443"}, "preemption": values{"enabled": true}, "hooks": values{"exec": values{"enabled": true}}, "budgets": values{"exhausted": values{"enabled": true}}},
			"with Jobs as migrations": {
				"hooks":    values{"http": values{"enabled": false}},
				"policies": values{"rules": []any{values{"apiGroups": []any{"batch"}, "resources": []any{"jobs"}, "verbs": []any{"create", "patch"}}}},
			},
		} {
			for _, policy := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](render(t, with)) {
				t.Run(policy.Name+" on "+release+" "+name, func(t *testing.T) { compilePolicy(t, v, policy) })
			}
		}
	}
}

// expression is one of a policy, as its compiler wants it.
type expression struct {
	name, source string
	types        []*cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.source }
func (e expression) ReturnTypes() []*cel.Type { return e.types }

func compilePolicy(t *testing.T, v *version.Version, policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(v))
	if err != nil {
		t.Fatal(err)
	}
	has := plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	check := func(field, source string, want *cel.Type, has plugincel.OptionalVariableDeclarations) {
		t.Helper()
		if source == "" {
			return
		}
		e := expression{name: field, source: source, types: []*cel.Type{want}}
		if result := compiler.CompileCELExpression(e, has, environment.NewExpressions); result.Error != nil {
			t.Errorf("%s: %v\n%s", field, result.Error, source)
		}
	}
	for _, v := range policy.Spec.Variables {
		e := expression{name: v.Name, source: v.Expression, types: []*cel.Type{cel.AnyType, cel.DynType}}
		if result := compiler.CompileAndStoreVariable(e, has, environment.NewExpressions); result.Error != nil {
			t.Errorf("variable %s: %v\n%s", v.Name, result.Error, v.Expression)
		}
	}
	for _, c := range policy.Spec.MatchConditions {
		check(c.Name, c.Expression, cel.BoolType, has)
	}
	silent := has // Messages have no authorizer.
	silent.HasAuthorizer = false
	for _, validation := range policy.Spec.Validations {
		check("validation", validation.Expression, cel.BoolType, has)
		check("messageExpression", validation.MessageExpression, cel.StringType, silent)
	}
}

// Policies that except the manager's account, or that are about it, mean the account that
// the chart makes, whatever its name.
func TestPoliciesFollowTheAccount(t *testing.T) {
	const own = "request.userInfo.username"
	for name, with := range map[string]values{
		"the default one":        nil,
		"one of another name":    {"fullnameOverride": "other"},
		"one that is made apart": {"serviceAccount": values{"name": "acct"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, with)
			account := only[*corev1.ServiceAccount](t, objects)
			user := "system:serviceaccount:" + account.Namespace + ":" + account.Name
			seen := 0
			for _, policy := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
				for _, c := range policy.Spec.MatchConditions {
					if !strings.HasPrefix(c.Expression, own) {
						continue
					}
					seen++
					if c.Expression != own+" == '"+user+"'" && c.Expression != own+" != '"+user+"'" {
						t.Errorf("%s: %s does not mean %s", policy.Name, c.Expression, user)
					}
				}
			}
			if seen < 9 {
				t.Errorf("only %d policies know the account", seen)
			}
		})
	}
}

// A reserved name that the administrator allows is allowed wherever names are admitted.
func TestReservedNamesAreAllowedInAllPolicies(t *testing.T) {
	objects := render(t, values{"interceptors": values{"allowedReservedNames": []any{"a.k8s.io"}}})
	for _, name := range []string{"pod-interceptors.drawbridge.dev", "interceptor-names.drawbridge.dev"} {
		policy := findPolicy(t, objects, name)
		text := fmt.Sprint(policy.Spec.Variables, policy.Spec.Validations)
		if !strings.Contains(text, ` in ["a.k8s.io"]`) {
			t.Errorf("%s does not allow a.k8s.io: %s", name, text)
		}
	}
}
