package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

func TestEveryObjectIsWellFormed(t *testing.T) {
	cases := map[string]struct {
		values values
		want   map[string]int
	}{
		"with the default values": {
			values: values{"crds": values{"enabled": true}},
			want: map[string]int{
				"CustomResourceDefinition": 6, "ServiceAccount": 1, "ClusterRole": 28, "ClusterRoleBinding": 18, "ConfigMap": 2, "Role": 6,
				"RoleBinding": 6, "Job": 1, "ValidatingAdmissionPolicy": 19, "ValidatingAdmissionPolicyBinding": 19, "ValidatingWebhookConfiguration": 1, "Secret": 1,
				"Service": 1, "Deployment": 1, "Pod": 1, "PodDisruptionBudget": 1,
			},
		},
		"for a manager outside of the cluster": {
			values: values{"crds": values{"enabled": true}, "deployment": values{"enabled": false}, "webhook": values{"url": "https://localhost:9443"}},
			want: map[string]int{
				"CustomResourceDefinition": 6, "ServiceAccount": 1, "ClusterRole": 27, "ClusterRoleBinding": 17, "ConfigMap": 2, "Role": 5,
				"RoleBinding": 5, "ValidatingAdmissionPolicy": 19, "ValidatingAdmissionPolicyBinding": 19, "ValidatingWebhookConfiguration": 1, "Secret": 1,
			},
		},
		"with everything optional off": {
			values: values{
				"crds": values{"enabled": false}, "rbac": values{"aggregate": false}, "webhook": values{"enabled": false},
				"podDisruptionBudget": values{"enabled": false}, "descheduler": values{"markInProgress": false},
				"surge": values{"enabled": false}, "guard": values{"enabled": false}, "maintenance": values{"enabled": false},
				"metrics": values{"protected": false}, "uninstall": values{"cleanup": false}, "hooks": values{"enabled": false},
				"budgets": values{"enabled": false}, "native": values{"controllers": "Off"},
			},
			want: map[string]int{
				"ServiceAccount": 1, "ClusterRole": 13, "ClusterRoleBinding": 8, "ConfigMap": 1, "Role": 3, "RoleBinding": 3,
				"ValidatingAdmissionPolicy": 13, "ValidatingAdmissionPolicyBinding": 13, "Secret": 1, "Service": 1, "Deployment": 1, "Pod": 1,
			},
		},
		"with a PodMonitor": {
			values: values{
				"metrics": values{"protected": false, "podMonitor": values{"enabled": true, "interval": "30s", "labels": values{"a": "b"}}},
				"crds":    values{"enabled": false}, "rbac": values{"aggregate": false}, "webhook": values{"enabled": false},
				"surge": values{"enabled": false}, "guard": values{"enabled": false}, "descheduler": values{"markInProgress": false},
			},
			want: map[string]int{
				"ServiceAccount": 1, "ClusterRole": 20, "ClusterRoleBinding": 14, "Role": 5, "RoleBinding": 5, "ConfigMap": 1, "Job": 1,
				"ValidatingAdmissionPolicy": 17, "ValidatingAdmissionPolicyBinding": 17, "Secret": 1, "Service": 1, "Deployment": 1, "Pod": 1,
				"PodDisruptionBudget": 1, "PodMonitor": 1,
			},
		},
		"with everything that can be given": {
			values: values{
				"crds": values{"enabled": true}, "fullnameOverride": "custom", "commonLabels": values{"team": "platform"},
				"image": values{
					"repository": "example.com/x", "tag": "v1", "digest": "sha256:" + strings.Repeat("0", 64), "pullSecrets": []any{values{"name": "s"}},
				},
				"metrics": values{"perRequest": false, "serviceMonitor": values{
					"enabled": true, "labels": values{"release": "prometheus"}, "interval": "1m30s", "scrapeTimeout": "10s",
					"relabelings":       []any{values{"action": "labeldrop", "regex": "instance"}},
					"metricRelabelings": []any{values{"action": "drop", "sourceLabels": []any{"__name__"}, "regex": "go_.*"}},
				}},
				"prometheusRule":   values{"enabled": true, "labels": values{"release": "prometheus"}, "alertLabels": values{"team": "platform"}},
				"grafanaDashboard": values{"enabled": true, "annotations": values{"folder": "Kubernetes"}},
				"networkPolicy": values{
					"enabled":     true,
					"metricsFrom": []any{values{"namespaceSelector": values{}}},
					"extraEgress": []any{values{"ports": []any{values{"port": 4317, "protocol": "TCP"}}}},
				},
				"serviceAccount": values{"name": "acct", "annotations": values{"a": "b"}},
				"deployment": values{
					"replicas": 1, "priorityClassName": "system-cluster-critical", "nodeSelector": values{"a": "b"},
					"tolerations": []any{values{"operator": "Exists"}}, "affinity": values{"nodeAffinity": values{}},
					"topologySpreadConstraints": []any{values{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}},
					"podAnnotations":            values{"a": "b"}, "podLabels": values{"c": "d"}, "extraArgs": []any{"--zap-log-level=debug"},
					"resources": values{"limits": values{"cpu": 1}},
				},
				"webhook": values{"breakGlassGroups": []any{"sre"}, "bypassUsers": []any{}, "excludedNamespaces": []any{}},
			},
			want: map[string]int{
				"CustomResourceDefinition": 6, "ServiceAccount": 1, "ClusterRole": 28, "ClusterRoleBinding": 18, "ConfigMap": 3, "Role": 6,
				"RoleBinding": 6, "Job": 1, "ValidatingAdmissionPolicy": 19, "ValidatingAdmissionPolicyBinding": 19, "ValidatingWebhookConfiguration": 1, "Secret": 1,
				"Service": 1, "Deployment": 1, "Pod": 1, "ServiceMonitor": 1, "PrometheusRule": 1, "NetworkPolicy": 1,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]int{}
			for _, o := range render(t, tc.values) {
				got[o.GetObjectKind().GroupVersionKind().Kind]++
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// Names that objects of the chart use for each other, and that the manager is told.
func TestNamesAgree(t *testing.T) {
	cases := map[string]values{
		"with the default names": nil,
		"with other names":       {"fullnameOverride": "other", "serviceAccount": values{"name": "acct"}},
	}
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			objects := render(t, v)
			account := only[*corev1.ServiceAccount](t, objects)
			secret := only[*corev1.Secret](t, objects)
			service := only[*corev1.Service](t, objects)
			webhooks := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, objects)
			deployment := only[*appsv1.Deployment](t, objects)
			args := deployment.Spec.Template.Spec.Containers[0].Args

			for what, arg := range map[string]string{
				"namespace":             "--namespace=" + install.DefaultNamespace,
				"certificate":           "--webhook-cert-secret=" + secret.Name,
				"webhook configuration": "--webhook-configuration=" + webhooks.Name,
				"DNS name":              "--webhook-dns-name=" + service.Name + "." + service.Namespace + ".svc",
			} {
				if !slices.Contains(args, arg) {
					t.Errorf("%s: no argument %s in %q", what, arg, args)
				}
			}
			if got := deployment.Spec.Template.Spec.ServiceAccountName; got != account.Name {
				t.Errorf("the manager runs under %q, want %q", got, account.Name)
			}
			for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
				if got := binding.Subjects[0].Name; got != account.Name {
					t.Errorf("permissions are bound to %q, want %q", got, account.Name)
				}
			}

			user := "system:serviceaccount:" + account.Namespace + ":" + account.Name
			authorization := findPolicy(t, objects, "evictionrequest-authorization.drawbridge.dev")
			if got := authorization.Spec.MatchConditions[0].Expression; !strings.Contains(got, "'"+user+"'") {
				t.Errorf("the policy does not exempt %s: %s", user, got)
			}
			cordon := findPolicy(t, objects, "node-maintenance-cordon.drawbridge.dev")
			if got := cordon.Spec.MatchConditions[0].Expression; !strings.Contains(got, "'"+user+"'") {
				t.Errorf("the policy warns %s, too: %s", user, got)
			}
			for _, webhook := range webhooks.Webhooks {
				if got := webhook.ClientConfig.Service; got.Name != service.Name || got.Namespace != service.Namespace {
					t.Errorf("webhook %s calls service %s/%s", webhook.Name, got.Namespace, got.Name)
				}
				if webhook.ClientConfig.CABundle != nil {
					t.Errorf("webhook %s brings a CA, which an upgrade would put in the place of the manager's", webhook.Name)
				}
			}
			if secret.Data != nil || secret.StringData != nil {
				t.Error("the Secret brings data, which an upgrade would put in the place of the manager's")
			}

			mayWrite := func(rules []rbacv1.PolicyRule, resource string) []string {
				var names []string
				for _, rule := range rules {
					if slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, "update") {
						names = append(names, rule.ResourceNames...)
					}
				}
				return names
			}
			var here []rbacv1.PolicyRule
			for _, role := range all[*rbacv1.Role](objects) {
				here = append(here, role.Rules...)
			}
			if diff := cmp.Diff([]string{secret.Name}, mayWrite(here, "secrets")); diff != "" {
				t.Errorf("Secrets the manager may write (-want +got):\n%s", diff)
			}
			var rules []rbacv1.PolicyRule
			for _, role := range all[*rbacv1.ClusterRole](objects) {
				rules = append(rules, role.Rules...)
			}
			if diff := cmp.Diff([]string{webhooks.Name}, mayWrite(rules, "validatingwebhookconfigurations")); diff != "" {
				t.Errorf("webhook configurations the manager may write (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBudgetOfTheManagerBlocksNoDrain(t *testing.T) {
	budget := only[*policyv1.PodDisruptionBudget](t, render(t, nil))
	if got := budget.Spec.MaxUnavailable.IntValue(); got != 1 {
		t.Errorf("maxUnavailable is %d, want 1", got)
	}
	single := values{"deployment": values{"replicas": 1}}
	if n := len(all[*policyv1.PodDisruptionBudget](render(t, single))); n != 0 {
		t.Errorf("a single replica has %d budgets, want none", n)
	}
}
