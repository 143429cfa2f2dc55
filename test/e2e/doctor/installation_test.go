//go:build unix

package doctor

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

func configuration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return named[*admissionregistrationv1.ValidatingWebhookConfiguration](inst.Release)
}

func certificateSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: inst.Release + "-webhook-cert"}}
}

// What can be wrong with the installation itself, after the manager has made its
// certificate and gone away, so that nobody repairs it.
func TestFindingsInTheInstallation(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := inst.Start(ctx, manager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name  string
		make  func(t *testing.T)
		want  wanted
		ahead time.Duration
	}{
		{
			name: "nobody answers",
			want: wanted{"reachable", doctor.Fail, "", "connection refused"},
		},
		{
			name: "there is no webhook configuration",
			make: func(t *testing.T) {
				t.Helper()
				removed(t, configuration())
			},
			want: wanted{"webhook", doctor.Fail, "validatingwebhookconfiguration/", "they bypass interceptors"},
		},
		{
			name: "a probe without the webhook does not come through",
			make: func(t *testing.T) {
				t.Helper()
				removed(t, configuration())
			},
			want: wanted{"reachable", doctor.Fail, "", "did not call the webhook"},
		},
		{
			name: "the webhook configuration is not about evictions any more",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, configuration(), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
					c.Webhooks[0].Rules[0].Resources = []string{"pods/binding"}
				})
			},
			want: wanted{"webhook", doctor.Fail, "validatingwebhookconfiguration/drawbridge", "leave out the creation of pods/eviction"},
		},
		{
			name: "the failure policy is not the one that is wanted",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, configuration(), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
					c.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
				})
			},
			want: wanted{"webhook", doctor.Warn, "validatingwebhookconfiguration/drawbridge", "the failurePolicy is Ignore, the values want Fail"},
		},
		{
			name: "the CA is missing",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, configuration(), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
					c.Webhooks[0].ClientConfig.CABundle = nil
				})
			},
			want: wanted{"webhook", doctor.Fail, "validatingwebhookconfiguration/drawbridge", "has no CA"},
		},
		{
			name: "the CA is another one",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, configuration(), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
					c.Webhooks[0].ClientConfig.CABundle = []byte(install.OtherCA)
				})
			},
			want: wanted{"certificate", doctor.Fail, "validatingwebhookconfiguration/drawbridge", "signed by unknown authority"},
		},
		{
			name: "cert-manager's injector is told to write the CA as well",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, configuration(), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
					c.Annotations["cert-manager.io/inject-ca-from"] = "drawbridge-system/drawbridge-webhook"
				})
			},
			want: wanted{"certificate", doctor.Warn, "validatingwebhookconfiguration/drawbridge", "cert-manager.io/inject-ca-from lets cert-manager's CA injector"},
		},
		{
			name: "the Secret is empty",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, certificateSecret(), func(s *corev1.Secret) { s.Data = nil })
			},
			want: wanted{"certificate", doctor.Fail, "secret/drawbridge-system/drawbridge-webhook-cert", "the webhook has no certificate"},
		},
		{
			name: "the Secret is missing",
			make: func(t *testing.T) {
				t.Helper()
				removed(t, certificateSecret())
			},
			want: wanted{"certificate", doctor.Fail, "secret/drawbridge-system/drawbridge-webhook-cert", "is missing"},
		},
		{
			name: "the certificate ends soon", ahead: (365 - 10) * 24 * time.Hour,
			want: wanted{"certificate", doctor.Warn, "secret/", "and should have been renewed"},
		},
		{
			name: "the certificate has ended", ahead: 370 * 24 * time.Hour,
			want: wanted{"certificate", doctor.Fail, "secret/", "the certificate ended at"},
		},
		{
			name: "a CustomResourceDefinition is missing",
			make: func(t *testing.T) {
				t.Helper()
				removedDefinition(t, "nodemaintenances.drawbridge.dev")
			},
			want: wanted{"api", doctor.Fail, "customresourcedefinition/nodemaintenances.drawbridge.dev", "not installed"},
		},
		{
			name: "an admission policy is missing",
			make: func(t *testing.T) {
				t.Helper()
				removed(t, named[*admissionregistrationv1.ValidatingAdmissionPolicy]("pod-interceptors.drawbridge.dev"))
			},
			want: wanted{"admission-policies", doctor.Fail, "validatingadmissionpolicy/pod-interceptors.drawbridge.dev", "it is missing"},
		},
		{
			name: "an admission policy is not bound",
			make: func(t *testing.T) {
				t.Helper()
				removed(t, named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]("evictionrequest-authorization.drawbridge.dev"))
			},
			want: wanted{"admission-policies", doctor.Fail, "validatingadmissionpolicybinding/evictionrequest-authorization.drawbridge.dev", "not bound"},
		},
		{
			name: "an admission policy only audits",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]("pod-interceptors.drawbridge.dev"), func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
					b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
				})
			},
			want: wanted{"admission-policies", doctor.Fail, "validatingadmissionpolicybinding/pod-interceptors.drawbridge.dev", "it does not deny"},
		},
		{
			name: "the policy that warns of registrations for every pod does not warn",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]("interceptor-selectors.drawbridge.dev"), func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
					b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
				})
			},
			want: wanted{"admission-policies", doctor.Warn, "validatingadmissionpolicybinding/interceptor-selectors.drawbridge.dev", "it does not warn"},
		},
		{
			name: "a node is left over from a maintenance", make: leftoverNode,
			want: wanted{"nodes", doctor.Warn, "node/node-1", "a NodeMaintenance that is gone (firmware), and still cordoned"},
		},
		{
			name: "a permission is missing",
			make: removedPermissions,
			want: wanted{"permissions", doctor.Fail, "serviceaccount/drawbridge-system/drawbridge", `"create" on pods/eviction`},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if tc.make != nil {
				tc.make(t)
			}
			if r := recognised(t, tc.ahead, tc.want); r.code != 1 {
				t.Errorf("exit code %d: the manager is away, so it is 1", r.code)
			}
		})
	}
}

func leftoverNode(t *testing.T) {
	t.Helper()
	changed(t, named[*corev1.Node]("node-1"), func(node *corev1.Node) {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[v1alpha1.MaintenancesAnnotation] = "firmware"
		node.Annotations[v1alpha1.CordonAnnotation] = v1alpha1.CordonOurs
		node.Spec.Unschedulable = true
	})
}

// removedPermissions takes all cluster roles from the manager.
func removedPermissions(t *testing.T) {
	t.Helper()
	var bindings rbacv1.ClusterRoleBindingList
	if err := admin.List(t.Context(), &bindings, client.MatchingLabels{"app.kubernetes.io/name": "drawbridge"}); err != nil {
		t.Fatal(err)
	}
	if len(bindings.Items) == 0 {
		t.Fatal("the chart binds nothing")
	}
	for i := range bindings.Items {
		removed(t, &bindings.Items[i])
	}
}

func removedDefinition(t *testing.T, name string) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	removed(t, crd)
	cluster.Eventually(t, "the definition is gone", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, &apiextensionsv1.CustomResourceDefinition{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there, or: %w", err)
		}
		return nil
	})
}
