package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// native is what API servers say that serve the API of KEP-4563.
const native = "lifecycle.k8s.io/v1alpha1/Eviction"

// responding renders the chart with these values of native.
func responding(t *testing.T, v values, kubernetes string, apiVersions ...string) []*admissionregistrationv1.MutatingAdmissionPolicy {
	t.Helper()
	return all[*admissionregistrationv1.MutatingAdmissionPolicy](renderWith(t, install.Options{
		Values: values{"native": v}, KubeVersion: kubernetes, APIVersions: apiVersions,
	}))
}

// New pods name the responder of ours where somebody else may move Evictions, and nowhere else
// unless a person wants it.
func TestWhereNewPodsNameOurResponder(t *testing.T) {
	both := []string{stamping, native}
	for name, tc := range map[string]struct {
		values      values
		kubernetes  string
		apiVersions []string
		want        bool
	}{
		"by default on 1.30":                                  {values{}, "1.30.0", nil, false},
		"by default on 1.37":                                  {values{}, "1.37.2", []string{stamping}, false},
		"by default where Drawbridge moves Evictions":         {values{}, "1.37.2", both, false},
		"where Drawbridge is to move them on 1.38":            {values{"controllers": "Drawbridge"}, "1.38.0", both, false},
		"by default on 1.38, which may have its own":          {values{}, "1.38.0-alpha.2", both, true},
		"where somebody else moves them":                      {values{"controllers": "Cluster"}, "1.37.2", both, true},
		"where the API is not served":                         {values{"controllers": "Cluster"}, "1.37.2", []string{stamping}, false},
		"where the policies are beta":                         {values{"controllers": "Cluster"}, "1.35.0", []string{native, "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"}, false},
		"where a person does not want it":                     {values{"controllers": "Cluster", "responderPolicy": "Never"}, "1.38.0", both, false},
		"where a person wants it, and the chart sees nothing": {values{"responderPolicy": "Always"}, "1.37.2", nil, true},
		"where Drawbridge does not look at the API":           {values{"controllers": "Off", "responderPolicy": "Always"}, "1.38.0", both, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := len(responding(t, tc.values, tc.kubernetes, tc.apiVersions...)) > 0; got != tc.want {
				t.Errorf("there are policies: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestThePoliciesForOurResponder(t *testing.T) {
	objects := renderWith(t, install.Options{Values: values{"native": values{"responderPolicy": "Always", "priority": 2000}, "webhook": values{"excludedNamespaces": []any{"infra"}}}})
	kinds := map[string]string{}
	for _, p := range all[*admissionregistrationv1.MutatingAdmissionPolicy](objects) {
		kinds[p.Name] = ""
		if kind := p.Spec.ParamKind; kind != nil {
			kinds[p.Name] = kind.Kind
		}
		if *p.Spec.FailurePolicy != admissionregistrationv1.Ignore || p.Spec.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
			t.Errorf("%s: failure policy %s, reinvocation %s", p.Name, *p.Spec.FailurePolicy, p.Spec.ReinvocationPolicy)
		}
		without := p.Spec.MatchConstraints.NamespaceSelector.MatchExpressions[0].Values
		if diff := cmp.Diff([]string{"infra", install.DefaultNamespace, "kube-system"}, without); diff != "" {
			t.Errorf("%s: namespaces without it (-want +got):\n%s", p.Name, diff)
		}
		if rule := p.Spec.MatchConstraints.ResourceRules[0]; !slices.Equal(rule.Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Create}) || !slices.Equal(rule.Resources, []string{"pods"}) {
			t.Errorf("%s is about %v of %v", p.Name, rule.Operations, rule.Resources)
		}
		if set := p.Spec.Mutations[0].JSONPatch; set == nil || !strings.Contains(set.Expression, "[{'name': dyn('"+v1alpha1.NativeResponder+"'), 'priority': dyn(2000)}]") {
			t.Errorf("%s does %+v", p.Name, p.Spec.Mutations[0])
		}
		binding := named[*admissionregistrationv1.MutatingAdmissionPolicyBinding](t, objects, p.Name)
		if ref := binding.Spec.ParamRef; (ref != nil) != (p.Spec.ParamKind != nil) || ref != nil && *ref.ParameterNotFoundAction != admissionregistrationv1.AllowAction {
			t.Errorf("%s: parameters %+v", p.Name, ref)
		}
		for _, v := range []*version.Version{version.MajorMinor(1, 36), version.MajorMinor(1, 37)} {
			compilePolicy(t, v, &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				ParamKind: p.Spec.ParamKind, MatchConditions: p.Spec.MatchConditions,
			}})
		}
	}
	want := map[string]string{
		"native-responder-annotation.drawbridge.dev": "", "native-responder-registrations.drawbridge.dev": "EvictionInterceptor",
		"native-responder-surge.drawbridge.dev": "", "native-responder-hooks.drawbridge.dev": "EvacuationHook", "native-responder-budgets.drawbridge.dev": "EvictionBudget",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("policies and their parameters (-want +got):\n%s", diff)
	}
}

// An API server that does not know the field refuses what sets it.
func TestNoResponderBeforeKubernetesKnowsIt(t *testing.T) {
	_, err := template(t, install.Options{Values: values{"native": values{"responderPolicy": "Always"}}, KubeVersion: "1.36.4"})
	if err == nil || !strings.Contains(err.Error(), "since 1.37") {
		t.Errorf("the error is: %v", err)
	}
}

// What does not intercept puts nothing into pods.
func TestNoPolicyForWhatIsSwitchedOff(t *testing.T) {
	policies := all[runtime.Object](renderWith(t, install.Options{Values: values{
		"native": values{"responderPolicy": "Always"}, "hooks": values{"enabled": false}, "budgets": values{"enabled": false}, "surge": values{"enabled": false},
	}}))
	if n := counts(policies)["MutatingAdmissionPolicy"]; n != 2 {
		t.Errorf("%d policies, want those of the annotation and of registrations", n)
	}
}
