package charts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/install"
)

// values of the chart.
type values = map[string]any

// render renders the chart and decodes every object strictly into its type.
func render(t *testing.T, v values) []runtime.Object {
	t.Helper()
	return renderWith(t, install.Options{Values: v})
}

func renderWith(t *testing.T, o install.Options) []runtime.Object {
	t.Helper()
	rendered, err := install.Render(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, monitoringv1.AddToScheme, certmanagerv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects := make([]runtime.Object, 0, len(rendered))
	for _, u := range rendered {
		typed, err := scheme.New(u.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		const strictly = true
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, strictly); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		checkMeta(t, u)
		objects = append(objects, typed)
	}
	return objects
}

// checkMeta checks what every object of the chart must have.
func checkMeta(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	clusterScoped := []string{"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
	want := install.DefaultNamespace
	if u.GetKind() == "RoleBinding" && slices.Contains([]string{"drawbridge-preemption", "drawbridge-webhook-clients"}, u.GetName()) {
		want = "kube-system" // To read a ConfigMap there.
	}
	if slices.Contains(clusterScoped, u.GetKind()) {
		want = ""
	}
	if u.GetNamespace() != want {
		t.Errorf("%s %s is in namespace %q, want %q", u.GetKind(), u.GetName(), u.GetNamespace(), want)
	}
	if u.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
		t.Errorf("%s %s has not the chart's labels: %v", u.GetKind(), u.GetName(), u.GetLabels())
	}
}

// only returns the one object of type T.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	found := all[T](objects)
	if len(found) != 1 {
		t.Fatalf("want one %T, have %d", *new(T), len(found))
	}
	return found[0]
}

// named returns the object of type T with that name.
func named[T interface {
	runtime.Object
	GetName() string
}](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	for _, object := range all[T](objects) {
		if object.GetName() == name {
			return object
		}
	}
	t.Fatalf("there is no %T %s", *new(T), name)
	return *new(T)
}

// all returns the objects of type T.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

func TestEveryObjectIsWellFormed(t *testing.T) {
	cases := map[string]struct {
		values values
		want   map[string]int
	}{
		"with the default values": {
			want: map[string]int{
				"CustomResourceDefinition": 4, "ServiceAccount": 1, "ClusterRole": 24, "ClusterRoleBinding": 14, "ConfigMap": 2, "Role": 5,
				"RoleBinding": 5, "Job": 1, "ValidatingAdmissionPolicy": 12, "ValidatingAdmissionPolicyBinding": 12, "ValidatingWebhookConfiguration": 1, "Secret": 1,
				"Service": 1, "Deployment": 1, "Pod": 1, "PodDisruptionBudget": 1,
			},
		},
		"for a manager outside of the cluster": {
			values: values{"deployment": values{"enabled": false}, "webhook": values{"url": "https://localhost:9443"}},
			want: map[string]int{
				"CustomResourceDefinition": 4, "ServiceAccount": 1, "ClusterRole": 23, "ClusterRoleBinding": 13, "ConfigMap": 2, "Role": 4,
				"RoleBinding": 4, "ValidatingAdmissionPolicy": 12, "ValidatingAdmissionPolicyBinding": 12, "ValidatingWebhookConfiguration": 1, "Secret": 1,
			},
		},
		"with everything optional off": {
			values: values{
				"crds": values{"enabled": false}, "rbac": values{"aggregate": false}, "webhook": values{"enabled": false},
				"podDisruptionBudget": values{"enabled": false}, "descheduler": values{"markInProgress": false},
				"surge": values{"enabled": false}, "guard": values{"enabled": false}, "maintenance": values{"enabled": false},
				"metrics": values{"protected": false}, "uninstall": values{"cleanup": false},
			},
			want: map[string]int{
				"ServiceAccount": 1, "ClusterRole": 13, "ClusterRoleBinding": 8, "ConfigMap": 1, "Role": 3, "RoleBinding": 3,
				"ValidatingAdmissionPolicy": 8, "ValidatingAdmissionPolicyBinding": 8, "Secret": 1, "Service": 1, "Deployment": 1, "Pod": 1,
			},
		},
		"with a PodMonitor": {
			values: values{
				"metrics": values{"protected": false, "podMonitor": values{"enabled": true, "interval": "30s", "labels": values{"a": "b"}}},
				"crds":    values{"enabled": false}, "rbac": values{"aggregate": false}, "webhook": values{"enabled": false},
				"surge": values{"enabled": false}, "guard": values{"enabled": false}, "descheduler": values{"markInProgress": false},
			},
			want: map[string]int{
				"ServiceAccount": 1, "ClusterRole": 16, "ClusterRoleBinding": 10, "Role": 4, "RoleBinding": 4, "ConfigMap": 1, "Job": 1,
				"ValidatingAdmissionPolicy": 10, "ValidatingAdmissionPolicyBinding": 10, "Secret": 1, "Service": 1, "Deployment": 1, "Pod": 1,
				"PodDisruptionBudget": 1, "PodMonitor": 1,
			},
		},
		"with everything that can be given": {
			values: values{
				"fullnameOverride": "custom", "commonLabels": values{"team": "platform"},
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
				"CustomResourceDefinition": 4, "ServiceAccount": 1, "ClusterRole": 24, "ClusterRoleBinding": 14, "ConfigMap": 3, "Role": 5,
				"RoleBinding": 5, "Job": 1, "ValidatingAdmissionPolicy": 12, "ValidatingAdmissionPolicyBinding": 12, "ValidatingWebhookConfiguration": 1, "Secret": 1,
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

func TestRBACHasNoWildcards(t *testing.T) {
	objects := render(t, nil)
	var rules []rbacv1.PolicyRule
	for _, role := range all[*rbacv1.Role](objects) {
		rules = append(rules, role.Rules...)
	}
	for _, role := range all[*rbacv1.ClusterRole](objects) {
		rules = append(rules, role.Rules...)
	}
	for _, rule := range rules {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
			if slices.Contains(list, "*") {
				t.Errorf("a rule has a wildcard: %v", rule)
			}
		}
	}
}

// Besides the surge and the guard, the manager may write to pods only for the
// hand-shake with the descheduler.
func TestPodsMayBePatchedForTheDescheduler(t *testing.T) {
	cases := map[string]struct {
		descheduler values
		want        bool
	}{
		"by default":              {values{}, true},
		"with one of the two":     {values{"markInProgress": false, "markEvictOnly": true}, true},
		"with neither of the two": {values{"markInProgress": false}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			off := values{"enabled": false}
			objects := render(t, values{"surge": off, "guard": off, "uninstall": values{"cleanup": false}, "descheduler": tc.descheduler})
			var roles, bound []string
			for _, role := range all[*rbacv1.ClusterRole](objects) {
				for _, rule := range role.Rules {
					if slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "patch") {
						roles = append(roles, role.Name)
					}
				}
			}
			for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
				if slices.Contains(roles, binding.RoleRef.Name) {
					bound = append(bound, binding.RoleRef.Name)
				}
			}
			var want []string
			if tc.want {
				want = []string{"drawbridge-descheduler"}
			}
			if diff := cmp.Diff(want, bound); diff != "" {
				t.Errorf("roles that may patch pods (-want +got):\n%s", diff)
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

// The manager understands what the chart tells it, and the chart's default values
// are the manager's own.
func TestArgumentsAreTheManagersFlags(t *testing.T) {
	cases := map[string]struct {
		values values
		want   func(*app.Options)
	}{
		"with the default values": {want: func(*app.Options) {}},
		"with other values": {
			values: values{
				"times": values{
					"heartbeatDeadline": "2m", "clockSkew": "2s", "completionGrace": "3s", "startupGrace": "4m",
					"evictionBackoffMin": "6s", "evictionBackoffMax": "7m", "retention": "8h", "markerDebounce": "90s",
				},
				"replacementGuard": values{"mode": "Evict", "window": "11m"},
				"interceptors":     values{"allowedReservedNames": []any{"deployment.apps.k8s.io", "a.k8s.io"}},
				"guard":            values{"enabled": false},
				"maintenance":      values{"enabled": false, "evacuationWait": "5m"},
				"descheduler":      values{"markInProgress": false, "markEvictOnly": true},
				"surge":            values{"progressDeadline": "3m", "clusterLimit": 2000000},
				"log":              values{"level": 3, "format": "console"},
				"certificates":     values{"mode": "cert-manager", "settle": "90s"},
				"featureGates":     values{"Guard": false, "Surge": true},
				"metrics":          values{"protected": false, "perRequest": false},
				"webhook":          values{"enabled": false, "excludedNamespaces": []any{}},
			},
			want: func(o *app.Options) {
				o.Policy.HeartbeatDeadline, o.Policy.ClockSkew = 2*time.Minute, 2*time.Second
				o.Policy.CompletionGrace, o.Policy.StartupGrace = 3*time.Second, 4*time.Minute
				o.EvictionBackoffMin, o.EvictionBackoffMax = 6*time.Second, 7*time.Minute
				o.Retention, o.MarkerDebounce = 8*time.Hour, 90*time.Second
				o.ReplacementGuard, o.ReplacementWindow = "Evict", 11*time.Minute
				o.AllowedReservedNames = []string{"deployment.apps.k8s.io", "a.k8s.io"}
				o.Guard.Enabled, o.Guard.ExcludedNamespaces = false, []string{}
				o.Maintenance.Enabled, o.Maintenance.EvacuationWait = false, 5*time.Minute
				o.DeschedulerMark, o.DeschedulerEvictOnly = false, true
				o.SurgeProgressDeadline, o.SurgeClusterLimit = 3*time.Minute, 2000000
				o.LogFormat = "console"
				o.Operations.CertManagerCertificate, o.Operations.CertificateSettle = "drawbridge-webhook", 90*time.Second
				o.Operations.Gates.Set = map[string]bool{"Guard": false, "Surge": true}
				o.Operations.MetricsProtected = false
				o.WebhookConfiguration = ""
				o.MetricsPerRequest = false
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			container := deploymentOf(t, tc.values).Spec.Template.Spec.Containers[0]
			got := app.DefaultOptions()
			flags := pflag.NewFlagSet("drawbridge", pflag.ContinueOnError)
			got.AddFlags(flags)
			if err := flags.Parse(container.Args); err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			want := app.DefaultOptions()
			want.Namespace = install.DefaultNamespace
			want.WebhookHost, want.HealthAddr, want.MetricsAddr = "", ":8081", ":8080"
			want.WebhookDNSNames = []string{"drawbridge-webhook.drawbridge-system.svc"}
			want.Operations.LogLevelConfig = "drawbridge-log"
			tc.want(&want)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(app.Options{}, "Clock", "Logger", "Registerer", "Level"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func findPolicy(t *testing.T, objects []runtime.Object, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	for _, policy := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
		if policy.Name == name {
			return policy
		}
	}
	t.Fatalf("no policy %s", name)
	return nil
}

func TestWebhooks(t *testing.T) {
	webhooks := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, values{
		"webhook": values{"url": "https://localhost:1234", "breakGlassGroups": []any{"sre", "it's"}},
	})).Webhooks
	if len(webhooks) != 3 {
		t.Fatalf("want 3 webhooks, have %d", len(webhooks))
	}
	eviction, status := webhooks[0], webhooks[1]

	if got, want := *eviction.ClientConfig.URL, "https://localhost:1234/validate-eviction"; got != want {
		t.Errorf("the eviction webhook calls %s, want %s", got, want)
	}
	if got, want := *status.ClientConfig.URL, "https://localhost:1234/validate-evictionrequest-status"; got != want {
		t.Errorf("the status webhook calls %s, want %s", got, want)
	}
	if *eviction.FailurePolicy != admissionregistrationv1.Ignore || *status.FailurePolicy != admissionregistrationv1.Ignore {
		t.Errorf("failure policies are %s and %s, want Ignore twice", *eviction.FailurePolicy, *status.FailurePolicy)
	}
	// The manager must be evictable while it is down.
	excluded := eviction.NamespaceSelector.MatchExpressions[0]
	if diff := cmp.Diff([]string{"kube-system", install.DefaultNamespace}, excluded.Values); diff != "" {
		t.Errorf("excluded namespaces (-want +got):\n%s", diff)
	}
	var conditions []string
	for _, c := range eviction.MatchConditions {
		conditions = append(conditions, c.Expression)
	}
	want := []string{
		`!(request.userInfo.username in ["system:kube-controller-manager"])`,
		`!has(request.userInfo.groups) || !request.userInfo.groups.exists(g, g in ["sre","it's"])`,
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("match conditions (-want +got):\n%s", diff)
	}
}

func TestCRDsAreKeptOnUninstall(t *testing.T) {
	const annotation = "helm.sh/resource-policy"
	for _, crd := range all[*apiextensionsv1.CustomResourceDefinition](render(t, nil)) {
		if got := crd.Annotations[annotation]; got != "keep" {
			t.Errorf("%s: annotation %s is %q, want keep", crd.Name, annotation, got)
		}
	}
	off := values{"crds": values{"keep": false}}
	for _, crd := range all[*apiextensionsv1.CustomResourceDefinition](render(t, off)) {
		if got := crd.Annotations[annotation]; got != "" {
			t.Errorf("%s: with crds.keep off the annotation %s is %q", crd.Name, annotation, got)
		}
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
