package charts_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// stamping is what API servers say that have MutatingAdmissionPolicies for good.
const stamping = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// preempting renders the chart with these values of preemption.
func preempting(t *testing.T, v values, apiVersions ...string) []runtime.Object {
	t.Helper()
	v["enabled"] = true
	return renderWith(t, install.Options{Values: values{"preemption": v}, APIVersions: apiVersions})
}

// counts is how many objects there are of each kind.
func counts(objects []runtime.Object) map[string]int {
	n := map[string]int{}
	for _, o := range objects {
		n[o.GetObjectKind().GroupVersionKind().Kind]++
	}
	return n
}

func TestWhatPreemptionAdds(t *testing.T) {
	base := counts(render(t, nil))
	cases := map[string]struct {
		values      values
		apiVersions []string
		want        map[string]int
	}{
		"on an API server that cannot stamp": {
			values: values{},
			want: map[string]int{
				"ClusterRole": 1, "ClusterRoleBinding": 1, "RoleBinding": 1, "Service": 1,
				"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
			},
		},
		"on one that has only the beta": {
			values: values{}, apiVersions: []string{"admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"},
			want: map[string]int{
				"ClusterRole": 1, "ClusterRoleBinding": 1, "RoleBinding": 1, "Service": 1,
				"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
			},
		},
		"on one that can": {
			values: values{}, apiVersions: []string{stamping},
			want: map[string]int{
				"ClusterRole": 1, "ClusterRoleBinding": 1, "RoleBinding": 1, "Service": 1,
				"ValidatingAdmissionPolicy": 2, "ValidatingAdmissionPolicyBinding": 2,
				"MutatingAdmissionPolicy": 1, "MutatingAdmissionPolicyBinding": 1,
			},
		},
		"on one that can and must not, with a token only": {
			values: values{"stamp": false, "clientCertificates": false, "tokenSecret": "scheduler-token"}, apiVersions: []string{stamping},
			want: map[string]int{
				"ClusterRole": 1, "ClusterRoleBinding": 1, "Service": 1,
				"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := counts(preempting(t, tc.values, tc.apiVersions...))
			for kind, n := range base {
				if got[kind] -= n; got[kind] == 0 {
					delete(got, kind)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects besides those without preemption (-want +got):\n%s", diff)
			}
		})
	}
}

// The manager understands what it is told, and goes by stamps only where there are any.
func TestArgumentsOfPreemption(t *testing.T) {
	cases := map[string]struct {
		values      values
		apiVersions []string
		want        func(*app.PreemptionOptions)
	}{
		"the defaults":                   {values: values{}, want: func(*app.PreemptionOptions) {}},
		"where the API server can stamp": {values: values{}, apiVersions: []string{stamping}, want: func(p *app.PreemptionOptions) { p.Stamped = true }},
		"everything that can be given": {
			values: values{
				"port": 9555, "clientCertificates": false, "schedulerUsers": []any{"a", "b"}, "tokenSecret": "t",
				"timeout": "2s", "stamp": false, "guardDeletes": true,
			},
			apiVersions: []string{stamping},
			want: func(p *app.PreemptionOptions) {
				p.Port, p.ClientCA, p.Users, p.TokenFile = 9555, "", []string{"a", "b"}, "/etc/drawbridge/preemption/token"
				p.Timeout, p.GuardDeletes = 2*time.Second, true
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			container := only[*appsv1.Deployment](t, preempting(t, tc.values, tc.apiVersions...)).Spec.Template.Spec.Containers[0]
			got := app.DefaultOptions()
			flags := pflag.NewFlagSet("drawbridge", pflag.ContinueOnError)
			got.AddFlags(flags)
			if err := flags.Parse(container.Args); err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			want := app.DefaultOptions().Preemption
			want.Enabled, want.Host = true, ""
			tc.want(&want)
			if diff := cmp.Diff(want, got.Preemption, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if want := "drawbridge-preemption.drawbridge-system.svc"; !slices.Contains(got.WebhookDNSNames, want) {
				t.Errorf("the certificate is not for %s: %v", want, got.WebhookDNSNames)
			}
			port := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == "preemption" })
			if port < 0 || int(container.Ports[port].ContainerPort) != got.Preemption.Port {
				t.Errorf("ports: %v", container.Ports)
			}
		})
	}
}

func TestTheTokenOfTheSchedulerIsMounted(t *testing.T) {
	pod := only[*appsv1.Deployment](t, preempting(t, values{"tokenSecret": "scheduler-token"})).Spec.Template.Spec
	if len(pod.Volumes) != 1 || pod.Volumes[0].Secret == nil || pod.Volumes[0].Secret.SecretName != "scheduler-token" {
		t.Errorf("volumes: %v", pod.Volumes)
	}
	want := []corev1.VolumeMount{{Name: "preemption-token", MountPath: "/etc/drawbridge/preemption", ReadOnly: true}}
	if diff := cmp.Diff(want, pod.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if pod := only[*appsv1.Deployment](t, preempting(t, values{})).Spec.Template.Spec; pod.Volumes != nil || pod.Containers[0].VolumeMounts != nil {
		t.Errorf("without a token: volumes %v, mounts %v", pod.Volumes, pod.Containers[0].VolumeMounts)
	}
}

func TestTheServiceOfTheScheduler(t *testing.T) {
	for address, v := range map[string]values{"": {}, "10.96.0.44": {"clusterIP": "10.96.0.44"}} {
		services := all[*corev1.Service](preempting(t, v))
		i := slices.IndexFunc(services, func(s *corev1.Service) bool { return s.Name == "drawbridge-preemption" })
		if i < 0 {
			t.Fatal("there is none")
		}
		if got := services[i].Spec; got.ClusterIP != address || got.Ports[0].TargetPort.StrVal != "preemption" || got.Ports[0].Port != 443 {
			t.Errorf("with address %q: %+v", address, got)
		}
	}
}

// The role of its own is about PriorityClasses only, and the one in kube-system is
// Kubernetes' own.
func TestTheRolesOfPreemption(t *testing.T) {
	objects := preempting(t, values{})
	i := slices.IndexFunc(all[*rbacv1.ClusterRole](objects), func(r *rbacv1.ClusterRole) bool { return r.Name == "drawbridge-preemption" })
	if i < 0 {
		t.Fatal("there is no role drawbridge-preemption")
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{"scheduling.k8s.io"}, Resources: []string{"priorityclasses"}, Verbs: []string{"get", "list", "watch"}}}
	if diff := cmp.Diff(want, all[*rbacv1.ClusterRole](objects)[i].Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	bindings := all[*rbacv1.RoleBinding](objects)
	i = slices.IndexFunc(bindings, func(r *rbacv1.RoleBinding) bool { return r.Namespace == "kube-system" })
	if i < 0 {
		t.Fatal("there is no binding in kube-system")
	}
	if got := bindings[i].RoleRef.Name; got != "extension-apiserver-authentication-reader" {
		t.Errorf("it binds %s", got)
	}
}

// The policies are about the annotation that the manager reads.
func TestThePoliciesOfPreemption(t *testing.T) {
	objects := preempting(t, values{}, stamping)
	stamp := only[*admissionregistrationv1.MutatingAdmissionPolicy](t, objects)
	if got := stamp.Spec.ReinvocationPolicy; got != admissionregistrationv1.IfNeededReinvocationPolicy {
		t.Errorf("the stamp is put on %s", got)
	}
	texts := []string{stamp.Spec.Mutations[0].JSONPatch.Expression}
	for _, name := range []string{"priorityclass-allow-disruption.drawbridge.dev", "pod-allow-disruption.drawbridge.dev"} {
		for _, validation := range findPolicy(t, objects, name).Spec.Validations {
			texts = append(texts, validation.Message)
		}
	}
	if len(texts) != 4 {
		t.Errorf("want 4 texts, have %d", len(texts))
	}
	for _, text := range texts {
		if !strings.Contains(text, v1alpha1.AllowDisruptionAnnotation) {
			t.Errorf("it is not about %s: %s", v1alpha1.AllowDisruptionAnnotation, text)
		}
	}
}

// Nobody but the scheduler may ever wait for us to delete a pod.
func TestTheWebhookForDeletions(t *testing.T) {
	const name = "scheduler-deletions.drawbridge.dev"
	find := func(objects []runtime.Object) *admissionregistrationv1.ValidatingWebhook {
		webhooks := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, objects).Webhooks
		i := slices.IndexFunc(webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == name })
		if i < 0 {
			return nil
		}
		return &webhooks[i]
	}
	for what, objects := range map[string][]runtime.Object{
		"without preemption": render(t, values{"preemption": values{"guardDeletes": true}}),
		"by default":         preempting(t, values{}),
	} {
		if find(objects) != nil {
			t.Errorf("%s there is a webhook for deletions", what)
		}
	}
	got := find(preempting(t, values{"guardDeletes": true, "schedulerUsers": []any{"system:kube-scheduler", "second"}}))
	if got == nil {
		t.Fatal("there is none")
	}
	if *got.FailurePolicy != admissionregistrationv1.Ignore || *got.ClientConfig.Service.Path != webhook.PodDeletePath {
		t.Errorf("failure policy %s, path %s", *got.FailurePolicy, *got.ClientConfig.Service.Path)
	}
	conditions := []admissionregistrationv1.MatchCondition{{Name: "by-the-scheduler", Expression: `request.userInfo.username in ["system:kube-scheduler","second"]`}}
	if diff := cmp.Diff(conditions, got.MatchConditions); diff != "" {
		t.Errorf("match conditions (-want +got):\n%s", diff)
	}
	want := admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.NamespacedScope)}
	if diff := cmp.Diff(want, got.Rules[0].Rule); diff != "" {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]admissionregistrationv1.OperationType{admissionregistrationv1.Delete}, got.Rules[0].Operations); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestBadValuesOfPreemptionAreRefused(t *testing.T) {
	cases := map[string]struct {
		values values
		want   string
	}{
		"nobody could be told from the scheduler": {values{"preemption": values{"enabled": true, "clientCertificates": false}}, "preemption.tokenSecret"},
		"a webhook in no configuration":           {values{"preemption": values{"enabled": true, "guardDeletes": true}, "webhook": values{"enabled": false}}, "needs webhook.enabled"},
		"no user":                                 {values{"preemption": values{"schedulerUsers": []any{}}}, "schedulerUsers"},
		"two users in one":                        {values{"preemption": values{"schedulerUsers": []any{"a,b"}}}, "schedulerUsers"},
		"a name for an address":                   {values{"preemption": values{"clusterIP": "scheduler"}}, "clusterIP"},
		"a timeout without a unit":                {values{"preemption": values{"timeout": "4"}}, "timeout"},
		"an unknown key":                          {values{"preemption": values{"token": "secret"}}, "token"},
		"a Secret that is no name":                {values{"preemption": values{"tokenSecret": "A/b"}}, "tokenSecret"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, install.Options{Values: tc.values})
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error does not name %q: %v", tc.want, err)
			}
		})
	}
}
