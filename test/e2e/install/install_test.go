package install_test

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

var kube *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{}, func(c *cluster.Cluster) error {
		kube = c
		return nil
	}))
}

type values = map[string]any

// managerElsewhere is a manager outside of the cluster that cannot be reached:
// nothing listens on the discard port.
func managerElsewhere(more values) values {
	webhook := values{"url": "https://localhost:9"}
	for k, v := range more {
		webhook[k] = v
	}
	return values{"deployment": values{"enabled": false}, "webhook": webhook}
}

func kubeconfig(t *testing.T) string {
	t.Helper()
	path, err := kube.KubeconfigFile("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, v values) {
	t.Helper()
	if err := install.Run(t.Context(), install.Options{Kubeconfig: kubeconfig(t), Values: v}); err != nil {
		t.Fatal(err)
	}
	if err := install.WaitReady(t.Context(), kube.Config()); err != nil {
		t.Fatal(err)
	}
}

func uninstall(t *testing.T) {
	t.Helper()
	if err := install.Uninstall(context.WithoutCancel(t.Context()), install.Options{Kubeconfig: kubeconfig(t)}); err != nil {
		t.Error(err)
	}
}

// The manager fills in what the chart leaves out: its CA and its certificate. An
// upgrade must take neither away, or evictions fail until the manager is back.
func TestUpgradeKeepsWhatTheManagerWrote(t *testing.T) {
	ctx, client := t.Context(), kube.Client()
	run(t, managerElsewhere(nil))
	t.Cleanup(func() { uninstall(t) })
	ca, certificate := []byte(install.OtherCA), []byte("certificate")

	config, err := kube.ConfigForServiceAccount(ctx, install.DefaultNamespace, install.DefaultRelease)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	webhooks, err := manager.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "drawbridge", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range webhooks.Webhooks {
		webhooks.Webhooks[i].ClientConfig.CABundle = ca
	}
	if _, err := manager.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(ctx, webhooks, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The manager reads it by list and watch only.
	secret, err := client.CoreV1().Secrets(install.DefaultNamespace).Get(ctx, "drawbridge-webhook-cert", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{"tls.crt": certificate}
	if _, err := manager.CoreV1().Secrets(install.DefaultNamespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	run(t, managerElsewhere(values{"timeoutSeconds": 3}))

	webhooks, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "drawbridge", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, webhook := range webhooks.Webhooks {
		if *webhook.TimeoutSeconds != 3 {
			t.Errorf("webhook %s: the upgrade had no effect: timeoutSeconds is %d", webhook.Name, *webhook.TimeoutSeconds)
		}
		if diff := cmp.Diff(string(ca), string(webhook.ClientConfig.CABundle)); diff != "" {
			t.Errorf("webhook %s: CA (-want +got):\n%s", webhook.Name, diff)
		}
	}
	secret, err = client.CoreV1().Secrets(install.DefaultNamespace).Get(ctx, "drawbridge-webhook-cert", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"tls.crt": certificate}, secret.Data); diff != "" {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}
}

func TestUninstallKeepsTheAPIAndReinstallWorks(t *testing.T) {
	run(t, managerElsewhere(nil))
	uninstall(t)
	client, err := apiextensions.NewForConfig(kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Get(t.Context(), "evictionrequests.drawbridge.dev", metav1.GetOptions{}); err != nil {
		t.Errorf("after the uninstallation: %v", err)
	}
	_, err = kube.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "pod-interceptors.drawbridge.dev", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the policy should be gone, got: %v", err)
	}
	run(t, managerElsewhere(nil))
	uninstall(t)
}

// With failurePolicy Fail and a manager that cannot be reached, the answer tells
// whose evictions are sent to the webhook at all.
func TestWhoseEvictionsAreSentToTheWebhook(t *testing.T) {
	admin := kube.Client()
	v := managerElsewhere(values{"failurePolicy": "Fail", "breakGlassGroups": []any{"sre"}})
	v["featureGates"] = values{"ManagedFailurePolicy": false} // No manager will ever set it.
	run(t, v)
	t.Cleanup(func() { uninstall(t) })
	ns := kube.Namespace(t)
	for _, name := range []string{"drainer", "firefighter", "system:kube-controller-manager", "drawbridge"} {
		user := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
		if name == "drawbridge" {
			user = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: install.DefaultNamespace, Name: name}
		}
		_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "evict-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			Subjects:   []rbacv1.Subject{user},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	manager, err := kube.ConfigForServiceAccount(t.Context(), install.DefaultNamespace, install.DefaultRelease)
	if err != nil {
		t.Fatal(err)
	}
	fromManager, err := kubernetes.NewForConfig(manager)
	if err != nil {
		t.Fatal(err)
	}
	by := func(user string, groups ...string) kubernetes.Interface {
		config, err := kube.ConfigFor(user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}

	cases := map[string]struct {
		by        kubernetes.Interface
		namespace string
		sent      bool
	}{
		"a user who drains":                     {by("drainer"), ns, true},
		"the manager: it has no blanket pass":   {fromManager, ns, true},
		"a member of a break-glass group":       {by("firefighter", "a", "sre"), ns, false},
		"a bypass user":                         {by("system:kube-controller-manager"), ns, false},
		"anybody in kube-system":                {by("drainer"), metav1.NamespaceSystem, false},
		"anybody in the release's namespace":    {by("drainer"), install.DefaultNamespace, false},
		"a member of a group of a similar name": {by("drainer", "sre2"), ns, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
				Spec: corev1.PodSpec{
					Containers:                   []corev1.Container{{Name: "c", Image: "i"}},
					AutomountServiceAccountToken: new(false),
				},
			}
			// kube-controller-manager makes the service account a pod needs.
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			created, err := createPod(ctx, admin, tc.namespace, pod)
			if err != nil {
				t.Fatal(err)
			}
			cluster.Eventually(t, "the API server to know the binding of the user", func(ctx context.Context) error {
				err = tc.by.PolicyV1().Evictions(tc.namespace).Evict(ctx, &policyv1.Eviction{
					ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: created.Name},
				})
				if apierrors.IsForbidden(err) { // No admission was asked.
					return err
				}
				return nil
			})
			if tc.sent != apierrors.IsInternalError(err) || (!tc.sent && err != nil) {
				t.Errorf("sent to the webhook: want %t, got: %v", tc.sent, err)
			}
		})
	}
}
