//go:build unix

package doctor

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/test/cluster"
	"github.com/drawbridge-dev/drawbridge/test/install"
	"github.com/drawbridge-dev/drawbridge/test/suite"
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
	m, err := inst.Start(ctx, suite.ManagerOptions{})
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
			want: wanted{"webhook", doctor.Fail, "validatingwebhookconfiguration/", "they pass interceptors by"},
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
					c.Webhooks[0].ClientConfig.CABundle = []byte(otherCA)
				})
			},
			want: wanted{"certificate", doctor.Fail, "validatingwebhookconfiguration/drawbridge", "signed by unknown authority"},
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
	cluster.Eventually(t, patience, "the definition is gone", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, &apiextensionsv1.CustomResourceDefinition{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there, or: %w", err)
		}
		return nil
	})
}

// What can be wrong with the Deployment. Its pods are Ready, as all of the embedded
// control plane are, and run no program: so no replica leads, and none can be reached.
//
// It comes last, also by the name of its file: no manager of a test can be started beside
// the Deployment.
func TestFindingsInTheDeployment(t *testing.T) {
	reinstall(t, map[string]any{"surge": map[string]any{"enabled": true}})
	object := "deployment/drawbridge-system/drawbridge"
	deployment := func() *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: inst.Release}}
	}
	cluster.Eventually(t, patience, "the Deployment to be ready", func(ctx context.Context) error {
		d := deployment()
		if err := admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.ReadyReplicas != 2 {
			return fmt.Errorf("%d replicas are ready", d.Status.ReadyReplicas)
		}
		return nil
	})
	r := recognised(t, 0, wanted{"replicas", doctor.Fail, "lease/drawbridge-system/drawbridge-leader", "no replica leads"})
	if f := r.find(wanted{"permissions", doctor.Fail, "", ""}); f != nil {
		t.Errorf("the chart gives all that the doctor asks for, and it finds %+v", *f)
	}
	if f := r.find(wanted{"reachable", doctor.Fail, "", "did not reach the manager"}); f == nil {
		t.Errorf("no replica can be reached, and it finds %v", r.findings())
	}

	cases := []struct {
		name  string
		make  func(t *testing.T)
		want  wanted
		ahead time.Duration
	}{
		{
			name: "scaled to nothing",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, deployment(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
			},
			want: wanted{"replicas", doctor.Fail, object, "it is scaled to 0"},
		},
		{
			name: "one replica",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, deployment(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
			},
			want: wanted{"replicas", doctor.Warn, object, "there is one replica"},
		},
		{
			name: "a rollout that fits on no node",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, deployment(), func(d *appsv1.Deployment) {
					d.Spec.Template.Spec.NodeSelector = map[string]string{"nobody": "has-it"}
				})
			},
			want: wanted{"replicas", doctor.Warn, object, "a rollout is not finished: pod drawbridge-"},
		},
		{
			name: "replicas of two versions",
			make: func(t *testing.T) {
				t.Helper()
				anotherImage(t)
			},
			want: wanted{"replicas", doctor.Warn, object, "the replicas run different images"},
		},
		{
			name: "a leader that has gone silent", ahead: 10 * time.Minute,
			make: func(t *testing.T) {
				t.Helper()
				now := metav1.NowMicro()
				passing(t, &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: "drawbridge-leader"},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("drawbridge-0"), RenewTime: &now, LeaseDurationSeconds: ptr.To[int32](15)},
				})
			},
			want: wanted{"replicas", doctor.Fail, "lease/drawbridge-system/drawbridge-leader", "drawbridge-0 has not renewed it for 1"},
		},
		{
			name: "definitions of another version",
			make: func(t *testing.T) {
				t.Helper()
				changed(t, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "evictionrequests.drawbridge.dev"}},
					func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels["app.kubernetes.io/version"] = "0.0.1" })
			},
			want: wanted{"api", doctor.Warn, "customresourcedefinition/evictionrequests.drawbridge.dev", "it is of version 0.0.1"},
		},
		{
			name: "a second installation", make: secondInstallation,
			want: wanted{"replicas", doctor.Warn, "deployment/", "it is a second installation"},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			tc.make(t)
			recognised(t, tc.ahead, tc.want)
		})
	}

	t.Run("cert-manager has not filled the certificate", func(t *testing.T) {
		changed(t, deployment(), func(d *appsv1.Deployment) {
			args := &d.Spec.Template.Spec.Containers[0].Args
			*args = append(*args, "--cert-manager-certificate=drawbridge-webhook")
		})
		recognised(t, 0, wanted{"cert-manager", doctor.Fail, "certificate/drawbridge-system/drawbridge-webhook", "is missing"})
	})
}

// reinstall installs the chart anew: helm does not take over what others have written.
func reinstall(t *testing.T, values map[string]any) {
	t.Helper()
	kubeconfig, err := kube.KubeconfigFile("installer", asAdmin...)
	if err != nil {
		t.Fatal(err)
	}
	options := install.Options{Kubeconfig: kubeconfig, Release: inst.Release, Namespace: inst.Namespace, Values: values}
	if err := install.Uninstall(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	cluster.Eventually(t, patience, "the definitions are gone", func(ctx context.Context) error {
		if err := admin.List(ctx, &definitions, client.MatchingLabels{"app.kubernetes.io/name": "drawbridge"}); err != nil {
			return err
		}
		for i := range definitions.Items {
			if err := admin.Delete(ctx, &definitions.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if len(definitions.Items) > 0 {
			return fmt.Errorf("%d are there", len(definitions.Items))
		}
		return nil
	})
	if err := install.Run(t.Context(), options); err != nil {
		t.Fatal(err)
	}
}

// anotherImage makes one replica say that it runs another image, as its kubelet would.
func anotherImage(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, patience, "a replica runs another image", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(inst.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "drawbridge"}); err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if len(pod.Status.ContainerStatuses) == 0 || pod.DeletionTimestamp != nil {
				continue
			}
			before := pod.DeepCopy()
			pod.Status.ContainerStatuses[0].ImageID = "example.com/drawbridge@sha256:0123"
			return admin.Status().Patch(ctx, pod, client.MergeFrom(before))
		}
		return fmt.Errorf("none of %d pods has a status", len(pods.Items))
	})
}

// secondInstallation is one that forgot the first.
func secondInstallation(t *testing.T) {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: inst.Release}}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		t.Fatal(err)
	}
	d.ObjectMeta = metav1.ObjectMeta{Namespace: kube.Namespace(t), Name: d.Name, Labels: d.Labels}
	d.Spec.Replicas = ptr.To[int32](0)
	passing(t, d)
}

// otherCA is a certificate; the API server takes no CA that is none.
const otherCA = `-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUecjisbCAt9X+0YeOYm05ZQPmQk0wCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjEwMTIwMDNaGA8yMTI2MTAyODAxMjAw
M1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDH2
R0uoNaqql7PLdQkcSceijICOM70UShvEctD+DsJXSNvW7ChwdazpJUmgahRqJcXd
dYOqH9twbFK3JL+RiBCjUzBRMB0GA1UdDgQWBBS3jxs4Chbw/RgB4gDJ/xUen7AM
GjAfBgNVHSMEGDAWgBS3jxs4Chbw/RgB4gDJ/xUen7AMGjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIElTQD+/By2OHkTd1+A0iTimWU+mROh/rg8/
mJdN4mqeAiEA4g2BDfa3ZXS186dMzkJ0MIWGdxh6JmTAKUounNVixDg=
-----END CERTIFICATE-----
`
