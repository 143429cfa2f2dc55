package charts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// hooksPolicies are the names of the policies of hooks that are there, each bound to deny.
func hooksPolicies(t *testing.T, objects []runtime.Object) []string {
	t.Helper()
	bound := map[string][]admissionregistrationv1.ValidationAction{}
	for _, binding := range all[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects) {
		bound[binding.Spec.PolicyName] = binding.Spec.ValidationActions
	}
	var names []string
	for _, policy := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
		if !slices.Contains([]string{"evacuationhook-authorization.drawbridge.dev", "manager-jobs.drawbridge.dev", "manager-exec.drawbridge.dev"}, policy.Name) {
			continue
		}
		names = append(names, strings.TrimSuffix(policy.Name, ".drawbridge.dev"))
		if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("the failure policy of %s is %s", policy.Name, *policy.Spec.FailurePolicy)
		}
		if diff := cmp.Diff([]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, bound[policy.Name]); diff != "" {
			t.Errorf("actions of %s (-want +got):\n%s", policy.Name, diff)
		}
	}
	slices.Sort(names)
	return names
}

// permissionsOf are those of a role, a line for each resource.
func permissionsOf(role *rbacv1.ClusterRole) map[string]string {
	may := map[string]string{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			may[strings.TrimSuffix(resource+"."+rule.APIGroups[0], ".")] = strings.Join(rule.Verbs, ",")
		}
	}
	return may
}

// What the manager may do for hooks is what is switched on, in a role that is bound.
func TestPermissionsOfHooks(t *testing.T) {
	plain := map[string]string{
		"evacuationhooks.drawbridge.dev": "get,list,watch", "evacuationhooks/status.drawbridge.dev": "update",
		"jobs.batch": "get,list,watch,create,delete", "statefulsets.apps": "get,list,watch", "deployments.apps": "get,list,watch", "replicasets.apps": "get,list,watch",
		"events": "list",
	}
	with := func(more map[string]string) map[string]string {
		for resource, verbs := range plain {
			more[resource] = verbs
		}
		return more
	}
	http := func(more map[string]string) map[string]string {
		more["services"], more["configmaps"], more["endpointslices.discovery.k8s.io"] = "get", "get", "list"
		return with(more)
	}
	cases := map[string]struct {
		hooks    values
		want     map[string]string
		policies []string
	}{
		"by default":   {values{}, http(map[string]string{}), []string{"evacuationhook-authorization", "manager-jobs"}},
		"with exec":    {values{"exec": values{"enabled": true}}, http(map[string]string{"pods/exec": "get,create"}), []string{"evacuationhook-authorization", "manager-exec", "manager-jobs"}},
		"with Secrets": {values{"http": values{"secrets": values{"enabled": true}}}, http(map[string]string{"secrets": "get"}), []string{"evacuationhook-authorization", "manager-jobs"}},
		"without http": {values{"http": values{"enabled": false, "secrets": values{"enabled": true}}}, with(map[string]string{}), []string{"evacuationhook-authorization", "manager-jobs"}},
		"with workloads of others": {
			values{"wait": values{"rules": []any{values{"apiGroups": []any{"example.com"}, "resources": []any{"databases"}, "verbs": []any{"get", "list", "watch"}}}}},
			http(map[string]string{"databases.example.com": "get,list,watch"}), []string{"evacuationhook-authorization", "manager-jobs"},
		},
		"without hooks": {values{"enabled": false, "exec": values{"enabled": true}}, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := render(t, values{"hooks": tc.hooks})
			var got map[string]string
			for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
				if binding.RoleRef.Name == "drawbridge-hooks" {
					got = permissionsOf(named[*rbacv1.ClusterRole](t, objects, "drawbridge-hooks"))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.policies, hooksPolicies(t, objects)); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing but hooks gives the manager Secrets of others, or a way into containers.
func TestSecretsAndExecAreForHooksAlone(t *testing.T) {
	strong := func(v values) []string {
		var found []string
		for _, role := range all[*rbacv1.ClusterRole](render(t, v)) {
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					if resource == "secrets" || resource == "pods/exec" {
						found = append(found, role.Name+" "+resource)
					}
				}
			}
		}
		return found
	}
	if diff := cmp.Diff([]string(nil), strong(nil)); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	all := values{"hooks": values{"exec": values{"enabled": true}, "http": values{"secrets": values{"enabled": true}}}}
	if diff := cmp.Diff([]string{"drawbridge-hooks secrets", "drawbridge-hooks pods/exec"}, strong(all)); diff != "" {
		t.Errorf("with both (-want +got):\n%s", diff)
	}
}

// The built-in role edit may write hooks, view may read them, and so may those who look
// after the installation.
func TestWhoMayWriteHooks(t *testing.T) {
	objects := render(t, nil)
	const hooks = "evacuationhooks.drawbridge.dev"
	got := map[string]string{}
	for _, name := range []string{"drawbridge-view", "drawbridge-edit", "drawbridge-doctor", "drawbridge-operator", "drawbridge-interceptor", "drawbridge-registrar"} {
		got[name] = permissionsOf(named[*rbacv1.ClusterRole](t, objects, name))[hooks]
	}
	want := map[string]string{
		"drawbridge-view": "get,list,watch", "drawbridge-edit": "create,update,patch,delete,deletecollection", "drawbridge-doctor": "list",
		"drawbridge-operator": "get,list,watch", "drawbridge-interceptor": "", "drawbridge-registrar": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what they may do with hooks (-want +got):\n%s", diff)
	}
	if labels := named[*rbacv1.ClusterRole](t, objects, "drawbridge-edit").Labels; labels["rbac.authorization.k8s.io/aggregate-to-view"] != "" {
		t.Errorf("view may write them: %v", labels)
	}
}

func TestArgumentsOfHooks(t *testing.T) {
	cases := map[string]struct {
		hooks values
		want  []string
	}{
		"by default": {values{}, []string{
			"--hooks=true", "--hooks-max-concurrent=50", "--hooks-max-concurrent-per-namespace=5", "--hooks-max-total=24h", "--hooks-exec=false", "--hooks-http=true",
		}},
		"with everything changed": {
			values{"maxConcurrent": 1000, "maxConcurrentPerNamespace": 1, "maxTotal": "168h", "exec": values{"enabled": true}, "http": values{"enabled": false}},
			[]string{"--hooks=true", "--hooks-max-concurrent=1000", "--hooks-max-concurrent-per-namespace=1", "--hooks-max-total=168h", "--hooks-exec=true", "--hooks-http=false"},
		},
		"switched off": {values{"enabled": false, "exec": values{"enabled": true}}, []string{"--hooks=false"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, arg := range deploymentOf(t, values{"hooks": tc.hooks}).Spec.Template.Spec.Containers[0].Args {
				if strings.HasPrefix(arg, "--hooks") {
					got = append(got, arg)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadValuesOfHooksAreRefused(t *testing.T) {
	rule := func(group, resource, verb string) values {
		return values{"wait": values{"rules": []any{values{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": []any{verb}}}}}
	}
	cases := map[string]struct {
		hooks values
		want  string
	}{
		"an unknown value":              {values{"maxConcurent": 1}, "maxConcurent"},
		"none at a time":                {values{"maxConcurrent": 0}, "maxConcurrent"},
		"more than a thousand":          {values{"maxConcurrent": 1001}, "maxConcurrent"},
		"none in a namespace":           {values{"maxConcurrentPerNamespace": 0}, "maxConcurrentPerNamespace"},
		"a thousand and one":            {values{"maxConcurrentPerNamespace": 1001}, "maxConcurrentPerNamespace"},
		"half a pod":                    {values{"maxConcurrentPerNamespace": 0.5}, "maxConcurrentPerNamespace"},
		"less than a minute":            {values{"maxTotal": "59s"}, "hooks.maxTotal must be from 1m to 168h, not 59s"},
		"more than a week":              {values{"maxTotal": "168h1s"}, "hooks.maxTotal must be from 1m to 168h, not 168h1s"},
		"a time without a unit":         {values{"maxTotal": "24"}, "maxTotal"},
		"exec that is no word":          {values{"exec": values{"enabled": "no"}}, "/hooks/exec/enabled"},
		"http that is a word":           {values{"http": true}, "/hooks/http"},
		"a rule that writes":            {rule("example.com", "databases", "patch"), "verbs"},
		"a rule for all verbs":          {rule("example.com", "databases", "*"), "verbs"},
		"a rule for Secrets":            {rule("", "secrets", "get"), "hooks.wait.rules[0] grants secrets, and so Secrets"},
		"a rule for Secrets, in groups": {rule("*", "secrets", "get"), "hooks.wait.rules[0] grants secrets, and so Secrets"},
		"a rule for everything":         {rule("", "*", "get"), "hooks.wait.rules[0] grants *, and so Secrets"},
		"a rule for all subresources":   {rule("", "*/status", "get"), "hooks.wait.rules[0] grants */status, and so Secrets"},
		"a rule for no group":           {values{"wait": values{"rules": []any{values{"apiGroups": []any{}, "resources": []any{"a"}, "verbs": []any{"get"}}}}}, "apiGroups"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, install.Options{Values: values{"hooks": tc.hooks}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error does not name %q: %v", tc.want, err)
			}
		})
	}
	_, err := template(t, install.Options{Values: values{"featureGates": values{"EvacuationHooks": false}}})
	if err == nil || !strings.Contains(err.Error(), "set hooks.enabled=false as well") {
		t.Errorf("hooks without their gate: %v", err)
	}
}

func TestGoodValuesOfHooksAreAccepted(t *testing.T) {
	cases := map[string]values{
		"the least":                    {"hooks": values{"maxConcurrent": 1, "maxConcurrentPerNamespace": 1, "maxTotal": "1m"}},
		"the most":                     {"hooks": values{"maxConcurrent": 1000, "maxConcurrentPerNamespace": 1000, "maxTotal": "168h"}},
		"off, with their gate":         {"hooks": values{"enabled": false}, "featureGates": values{"EvacuationHooks": false}},
		"secrets of another API group": {"hooks": values{"wait": values{"rules": []any{values{"apiGroups": []any{"vault.example.com"}, "resources": []any{"secrets"}, "verbs": []any{"get"}}}}}},
	}
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := template(t, install.Options{Values: v}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The manager makes Jobs of hooks alone, unless the administrator's own policies migrate by
// Jobs: those have no label of ours.
func TestTheManagersJobs(t *testing.T) {
	rules := func(group, resource string, verbs ...any) values {
		return values{"policies": values{"rules": []any{values{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}}}}
	}
	cases := map[string]struct {
		values                  values
		othersMade, othersMoved bool
	}{
		"by default":                   {nil, false, false},
		"with migrations of others":    {rules("example.com", "moves", "create", "delete"), false, false},
		"with Jobs that are read":      {rules("batch", "jobs", "get", "list", "watch"), false, false},
		"with Jobs as migrations":      {rules("batch", "jobs", "get", "create", "delete"), true, false},
		"with Jobs as workloads":       {rules("batch", "jobs", "get", "patch"), false, true},
		"with all that is in batch":    {rules("batch", "*", "create"), true, false},
		"with all that can be done":    {rules("*", "jobs", "*"), true, true},
		"with CronJobs, which are not": {rules("batch", "cronjobs", "create"), false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			policy := findPolicy(t, render(t, tc.values), "manager-jobs.drawbridge.dev")
			text := fmt.Sprint(policy.Spec.Validations)
			if got := !strings.Contains(text, v1alpha1.HookLabel); got != tc.othersMade {
				t.Errorf("it may make Jobs without the label: %t, want %t", got, tc.othersMade)
			}
			if got := policy.Spec.Validations[0].Expression != "request.operation != 'UPDATE'"; got != tc.othersMoved {
				t.Errorf("it may change Jobs: %t, want %t", got, tc.othersMoved)
			}
		})
	}
}

// Names that end like those of hooks' interceptors are kept for them, whether hooks are on
// or off.
func TestNamesOfHooksAreReserved(t *testing.T) {
	for name, v := range map[string]values{"with hooks": nil, "without": {"hooks": values{"enabled": false}}} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, v)
			for _, policy := range []string{"interceptor-names.drawbridge.dev", "evictionrequest-status.drawbridge.dev"} {
				spec := findPolicy(t, objects, policy).Spec
				if text := fmt.Sprint(spec.Variables, spec.Validations); !strings.Contains(text, "endsWith('"+v1alpha1.HookInterceptorSuffix+"')") {
					t.Errorf("%s does not know %s: %s", policy, v1alpha1.HookInterceptorSuffix, text)
				}
			}
		})
	}
}
