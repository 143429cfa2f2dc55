package charts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// boundRoles are the roles about budgets that the manager is bound to.
func boundRoles(objects []runtime.Object) []string {
	var names []string
	for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
		if name := binding.RoleRef.Name; strings.HasPrefix(name, "drawbridge-budgets") && binding.Subjects[0].Name == "drawbridge" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestPermissionsOfBudgets(t *testing.T) {
	objects := render(t, nil)
	if diff := cmp.Diff([]string{"drawbridge-budgets", "drawbridge-budgets-config"}, boundRoles(objects)); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	want := map[string]string{
		"evictionbudgets.drawbridge.dev": "get,list,watch", "evictionbudgets/status.drawbridge.dev": "update",
		"statefulsets.apps": "list,watch", "deployments.apps": "list,watch", "replicasets.apps": "list,watch",
		"replicationcontrollers": "list,watch",
	}
	if diff := cmp.Diff(want, permissionsOf(named[*rbacv1.ClusterRole](t, objects, "drawbridge-budgets"))); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
	if got := boundRoles(render(t, values{"budgets": values{"enabled": false}})); len(got) > 0 {
		t.Errorf("without budgets there are the roles %q", got)
	}
}

// The permission to delete pods is there only where it is asked for, and bounded by policies.
func TestPodsAreDeletedOnlyIfEnabled(t *testing.T) {
	on := func(more ...any) values {
		exhausted := values{"enabled": true}
		if len(more) > 0 {
			exhausted["namespaces"] = more
		}
		return values{"budgets": values{"exhausted": exhausted}}
	}
	type bound struct {
		Cluster    []string
		Namespaces []string
		Policies   []string
		Argument   string
	}
	const name = "drawbridge-budgets-exhausted"
	policies := []string{"manager-deletion-records.drawbridge.dev", "manager-deletions.drawbridge.dev"}
	cases := map[string]struct {
		values values
		want   bound
	}{
		"by default":          {nil, bound{Argument: "--budgets-exhausted=false"}},
		"enabled":             {on(), bound{Cluster: []string{name}, Policies: policies, Argument: "--budgets-exhausted=true"}},
		"for some namespaces": {on("shop", "bank"), bound{Namespaces: []string{"bank", "shop"}, Policies: policies, Argument: "--budgets-exhausted=true"}},
		"without budgets":     {values{"budgets": values{"enabled": false, "exhausted": values{"enabled": true}}}, bound{Argument: "--budgets-exhausted=false"}},
	}
	for what, tc := range cases {
		t.Run(what, func(t *testing.T) {
			objects := render(t, tc.values)
			var got bound
			for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
				if binding.RoleRef.Name == name {
					got.Cluster = append(got.Cluster, binding.Name)
				}
			}
			for _, binding := range all[*rbacv1.RoleBinding](objects) {
				if binding.RoleRef.Name == name && binding.RoleRef.Kind == "ClusterRole" && binding.Subjects[0].Name == "drawbridge" {
					got.Namespaces = append(got.Namespaces, binding.Namespace)
				}
			}
			for _, policy := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
				if slices.Contains(policies, policy.Name) {
					got.Policies = append(got.Policies, policy.Name)
				}
			}
			slices.Sort(got.Namespaces)
			slices.Sort(got.Policies)
			for _, arg := range deploymentOf(t, tc.values).Spec.Template.Spec.Containers[0].Args {
				if strings.HasPrefix(arg, "--budgets-exhausted") {
					got.Argument = arg
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what there is (-want +got):\n%s", diff)
			}
			if len(tc.want.Policies) > 0 {
				want := map[string]string{"pods": "delete", "poddisruptionbudgets.policy": "get"}
				if diff := cmp.Diff(want, permissionsOf(named[*rbacv1.ClusterRole](t, objects, name))); diff != "" {
					t.Errorf("permissions (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// The objects that conditions read, and the scales, are those that the administrator adds:
// the chart has none, and no upgrade takes away what was added.
func TestTheRoleThatTheAdministratorAddsTo(t *testing.T) {
	role := named[*rbacv1.ClusterRole](t, render(t, nil), "drawbridge-budgets-config")
	if role.AggregationRule == nil || len(role.AggregationRule.ClusterRoleSelectors) != 1 {
		t.Fatalf("it is not made up of others: %+v", role)
	}
	if diff := cmp.Diff(map[string]string{"drawbridge.dev/aggregate-to-budgets": "true"}, role.AggregationRule.ClusterRoleSelectors[0].MatchLabels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if role.Rules != nil {
		t.Errorf("it brings rules, which an upgrade would put in the place of those that were added: %v", role.Rules)
	}
	for _, other := range all[*rbacv1.ClusterRole](render(t, nil)) {
		if _, added := other.Labels["drawbridge.dev/aggregate-to-budgets"]; added {
			t.Errorf("the chart adds %s by itself", other.Name)
		}
	}
}

// Budgets are for those whom PodDisruptionBudgets are for.
func TestWhoMayWriteBudgets(t *testing.T) {
	objects := render(t, nil)
	got := map[string][2]string{}
	for _, name := range []string{"drawbridge-view", "drawbridge-edit", "drawbridge-doctor", "drawbridge-operator", "drawbridge-interceptor", "drawbridge-registrar"} {
		may := permissionsOf(named[*rbacv1.ClusterRole](t, objects, name))
		got[name] = [2]string{may["evictionbudgets.drawbridge.dev"], may["evictionbudgets/status.drawbridge.dev"]}
	}
	want := map[string][2]string{
		"drawbridge-view": {"get,list,watch", "get,list,watch"}, "drawbridge-edit": {"create,update,patch,delete,deletecollection", ""},
		"drawbridge-doctor": {"list", ""}, "drawbridge-operator": {"get,list,watch", ""}, "drawbridge-interceptor": {}, "drawbridge-registrar": {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what they may do with budgets, and with their status (-want +got):\n%s", diff)
	}
}

func TestArgumentsOfBudgets(t *testing.T) {
	for want, v := range map[string]values{"--budgets=true": nil, "--budgets=false": {"budgets": values{"enabled": false}}} {
		if args := deploymentOf(t, v).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, want) {
			t.Errorf("the manager is not started with %s: %q", want, args)
		}
	}
}

func TestBadValuesOfBudgetsAreRefused(t *testing.T) {
	cases := map[string]struct {
		values values
		want   string
	}{
		"an unknown value":       {values{"budgets": values{"scales": true}}, "scales"},
		"a word":                 {values{"budgets": values{"enabled": "no"}}, "/budgets/enabled"},
		"a namespace as a word":  {values{"budgets": values{"exhausted": values{"namespaces": "shop"}}}, "/budgets/exhausted/namespaces"},
		"budgets that are a yes": {values{"budgets": true}, "/budgets"},
		"without their gate":     {values{"featureGates": values{"EvictionBudgets": false}}, "set budgets.enabled=false as well"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, install.Options{Values: tc.values})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error does not name %q: %v", tc.want, err)
			}
		})
	}
	off := values{"budgets": values{"enabled": false}, "featureGates": values{"EvictionBudgets": false}}
	if _, err := template(t, install.Options{Values: off}); err != nil {
		t.Errorf("off, with their gate: %v", err)
	}
}

// What keeps others from granting to themselves is there whether budgets are on or off, and
// so is the API.
func TestWhatProtectsBudgetsIsAlwaysThere(t *testing.T) {
	deny, warn := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	for name, v := range map[string]values{
		"with budgets": {"crds": values{"enabled": true}},
		"without":      {"crds": values{"enabled": true}, "budgets": values{"enabled": false}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, v)
			for policy, want := range map[string][]admissionregistrationv1.ValidationAction{
				"evictionbudget-config.drawbridge.dev": deny, "evictionbudget-status.drawbridge.dev": deny, "evictionbudget-nothing.drawbridge.dev": warn,
				"evictionbudget-exhausted.drawbridge.dev": deny,
			} {
				failure := *findPolicy(t, objects, policy).Spec.FailurePolicy
				if (failure == admissionregistrationv1.Fail) != slices.Equal(want, deny) {
					t.Errorf("the failure policy of %s is %s", policy, failure)
				}
				binding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, policy)
				if diff := cmp.Diff(want, binding.Spec.ValidationActions); diff != "" || binding.Spec.PolicyName != policy {
					t.Errorf("actions of %s, bound to %s (-want +got):\n%s", policy, binding.Spec.PolicyName, diff)
				}
			}
			for _, policy := range []string{"interceptor-names.drawbridge.dev", "evictionrequest-status.drawbridge.dev"} {
				spec := findPolicy(t, objects, policy).Spec
				for _, name := range []string{v1alpha1.BudgetInterceptor, v1alpha1.NativeInterceptor, v1alpha1.OrderInterceptor} {
					if text := fmt.Sprint(spec.Variables, spec.Validations); !strings.Contains(text, "'"+name+"'") {
						t.Errorf("%s does not know %s: %s", policy, name, text)
					}
				}
			}
			named[*apiextensionsv1.CustomResourceDefinition](t, objects, "evictionbudgets.drawbridge.dev")
		})
	}
}
