package charts_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// deploymentOf renders the manager's Deployment, whatever kinds of others the chart has
// besides.
func deploymentOf(t *testing.T, v values) *appsv1.Deployment {
	t.Helper()
	rendered, err := template(t, install.Options{Values: v})
	if err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{}
	for _, object := range rendered {
		if object.GetKind() == "Deployment" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, deployment, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	return deployment
}

// The probe goes the same way as the webhook that it proves, and can hold up nothing.
func TestTheProbeIsCalledForNothingElse(t *testing.T) {
	conf := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, nil))
	find := func(name string) admissionregistrationv1.ValidatingWebhook {
		i := slices.IndexFunc(conf.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == name })
		if i < 0 {
			t.Fatalf("there is no webhook %s", name)
		}
		return conf.Webhooks[i]
	}
	proven, probe := find(failurepolicy.EvictionWebhook), find(failurepolicy.ProbeWebhook)
	way := func(w admissionregistrationv1.ValidatingWebhook) admissionregistrationv1.ServiceReference {
		service := *w.ClientConfig.Service
		service.Path = nil
		return service
	}
	if diff := cmp.Diff(way(proven), way(probe)); diff != "" {
		t.Errorf("the way to the manager (-evictions +probe):\n%s", diff)
	}
	if *probe.FailurePolicy != admissionregistrationv1.Fail {
		t.Error("the API server would not say why it does not reach the manager")
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": install.DefaultNamespace}, probe.NamespaceSelector.MatchLabels); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	if got, want := probe.MatchConditions[0].Expression, "request.name == '"+failurepolicy.ProbePod+"'"; got != want {
		t.Errorf("it is called when %s, want %s", got, want)
	}
}

// A gate that leaves the policy to the administrator needs no manager to set it.
func TestWithoutItsGateTheFailurePolicyIsTheOneWanted(t *testing.T) {
	v := values{"featureGates": values{"ManagedFailurePolicy": false}, "webhook": values{"failurePolicy": "Fail"}}
	conf := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, v))
	if got := *conf.Webhooks[0].FailurePolicy; got != admissionregistrationv1.Fail {
		t.Errorf("it is %s", got)
	}
}

// With cert-manager the chart brings what it needs, and no Secret, which would be
// cert-manager's.
func TestCertManager(t *testing.T) {
	const group = certmanager.GroupName
	ours := cmmetav1.IssuerReference{Group: group, Kind: certmanagerv1.IssuerKind, Name: "drawbridge-webhook"}
	selfSigned := cmmetav1.IssuerReference{Group: group, Kind: certmanagerv1.IssuerKind, Name: "drawbridge-webhook-self-signed"}
	cases := map[string]struct {
		certManager         values
		certificates        map[string]cmmetav1.IssuerReference
		issuers             []string
		duration, renewLead time.Duration
	}{
		"with an authority of its own": {
			certManager:  values{},
			certificates: map[string]cmmetav1.IssuerReference{"drawbridge-webhook": ours, "drawbridge-webhook-ca": selfSigned},
			issuers:      []string{"drawbridge-webhook", "drawbridge-webhook-self-signed"},
			duration:     90 * 24 * time.Hour, renewLead: 30 * 24 * time.Hour,
		},
		"with an issuer that is there": {
			certManager: values{
				"issuerRef": values{"name": "vault", "kind": certmanagerv1.ClusterIssuerKind, "group": group}, "duration": "48h0m0s", "renewBefore": "12h0m0s",
			},
			certificates: map[string]cmmetav1.IssuerReference{"drawbridge-webhook": {Group: group, Kind: certmanagerv1.ClusterIssuerKind, Name: "vault"}},
			duration:     48 * time.Hour, renewLead: 12 * time.Hour,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := render(t, values{"certificates": values{"mode": "cert-manager", "certManager": tc.certManager}})
			if secrets := all[*corev1.Secret](objects); len(secrets) != 0 {
				t.Error("there is a Secret")
			}
			certificates := map[string]cmmetav1.IssuerReference{}
			for _, certificate := range all[*certmanagerv1.Certificate](objects) {
				certificates[certificate.Name] = certificate.Spec.IssuerRef
			}
			if diff := cmp.Diff(tc.certificates, certificates); diff != "" {
				t.Errorf("Certificates, and who issues them (-want +got):\n%s", diff)
			}
			var issuers []string
			for _, issuer := range all[*certmanagerv1.Issuer](objects) {
				issuers = append(issuers, issuer.Name)
			}
			slices.Sort(issuers)
			if diff := cmp.Diff(tc.issuers, issuers); diff != "" {
				t.Errorf("Issuers (-want +got):\n%s", diff)
			}
			want := certmanagerv1.CertificateSpec{
				SecretName:  "drawbridge-webhook-cert",
				DNSNames:    []string{"drawbridge-webhook.drawbridge-system.svc", "localhost"}, // What the manager checks.
				IssuerRef:   tc.certificates["drawbridge-webhook"],
				Duration:    &metav1.Duration{Duration: tc.duration},
				RenewBefore: &metav1.Duration{Duration: tc.renewLead},
				Usages:      []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageKeyEncipherment, certmanagerv1.UsageServerAuth},
				PrivateKey:  &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: 256, RotationPolicy: certmanagerv1.RotationPolicyAlways},
			}
			if diff := cmp.Diff(want, named[*certmanagerv1.Certificate](t, objects, "drawbridge-webhook").Spec); diff != "" {
				t.Errorf("the webhook's Certificate (-want +got):\n%s", diff)
			}
		})
	}
}

// The hook takes back what the manager wrote: as the manager, with permissions that
// helm deletes when it is done.
func TestTheUninstallHook(t *testing.T) {
	objects := render(t, values{"fullnameOverride": "other", "uninstall": values{"keepRequests": true, "wait": "90s"}, "serviceAccount": values{"name": "acct"}})
	job := only[*batchv1.Job](t, objects)
	pod := job.Spec.Template.Spec
	if pod.ServiceAccountName != "acct" {
		t.Errorf("it runs under %s", pod.ServiceAccountName)
	}
	command := app.NewCommand()
	found, args, err := command.Find(pod.Containers[0].Args)
	if err != nil || found.Name() != "cleanup" {
		t.Fatalf("the program does not know %v: %v", pod.Containers[0].Args, err)
	}
	if err := found.ParseFlags(args); err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	for _, name := range []string{"namespace", "deployment", "webhook-configuration", "keep", "wait"} {
		got[name] = found.Flags().Lookup(name).Value.String()
	}
	want := map[string]string{
		"namespace": install.DefaultNamespace, "deployment": named[*appsv1.Deployment](t, objects, "other").Name,
		"webhook-configuration": only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, objects).Name, "keep": "true", "wait": "1m30s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	hooks := map[string]map[string]string{
		"Job": job.Annotations, "Role": named[*rbacv1.Role](t, objects, "other-cleanup").Annotations, "RoleBinding": named[*rbacv1.RoleBinding](t, objects, "other-cleanup").Annotations,
		"ClusterRole": named[*rbacv1.ClusterRole](t, objects, "other-cleanup").Annotations, "ClusterRoleBinding": named[*rbacv1.ClusterRoleBinding](t, objects, "other-cleanup").Annotations,
	}
	for kind, annotations := range hooks {
		if annotations["helm.sh/hook"] != "pre-delete" || !strings.Contains(annotations["helm.sh/hook-delete-policy"], "hook-succeeded") {
			t.Errorf("%s: annotations %v", kind, annotations)
		}
	}
	for _, rule := range named[*rbacv1.ClusterRole](t, objects, "other-cleanup").Rules {
		if slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "delete") {
			t.Error("it may delete pods")
		}
	}
}

// Another level must not restart the manager, or it is of no use in an incident.
func TestTheLogLevelRestartsNothing(t *testing.T) {
	loud := values{"log": values{"level": "debug"}}
	if diff := cmp.Diff(deploymentOf(t, nil).Spec.Template, deploymentOf(t, loud).Spec.Template); diff != "" {
		t.Errorf("pods of the manager (-info +debug):\n%s", diff)
	}
	if got := named[*corev1.ConfigMap](t, render(t, loud), "drawbridge-log").Data["level"]; got != "debug" {
		t.Errorf("the ConfigMap says %q", got)
	}
}
