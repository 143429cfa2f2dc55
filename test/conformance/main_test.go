// Package conformance is the acceptance suite of the EvictionRequest API: its
// numbered statements, on a real control plane with the chart installed. The name
// of a subtest begins with the numbers of the statements it proves.
package conformance

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/audit"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// setupTimeout for the installation of the chart, the time to build helm included.
const setupTimeout = 10 * time.Minute

var (
	// kube is the control plane all tests of this package share.
	kube *cluster.Cluster
	// drawbridge is the chart in it, without a manager: see startManager.
	drawbridge *manager.Installation
	// scheme knows Kubernetes' types and ours.
	scheme = cluster.Scheme()
)

func TestMain(m *testing.M) {
	os.Exit(cluster.MainThen(m, cluster.Options{
		Nodes:      1,
		RequestLog: true,
		// Without it the API server drops spec.schedulingGroup of pods (statement 53),
		// and with it the scheduler wants to watch these groups.
		FeatureGates:  map[string]bool{"GenericWorkload": true},
		RuntimeConfig: map[string]string{"scheduling.k8s.io/v1beta1": "true"},
	}, setup, func(c *cluster.Cluster) error {
		return audit.After(c, drawbridge.Namespace, manager.Advances())
	}))
}

// setup installs the chart. The manager is no part of it: a test that needs one
// starts it.
func setup(c *cluster.Cluster) (err error) {
	kube = c
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if drawbridge, err = manager.Install(ctx, c, manager.InstallOptions{}); err != nil {
		return err
	}
	if err := letUpdate(ctx); err != nil {
		return err
	}
	return waitAuthorizationPolicy(ctx)
}

// letUpdate gives the chart's service account what the tests need that write whole
// objects in its name; the manager itself only patches.
func letUpdate(ctx context.Context) error {
	admin, err := clientFor(kube.Config())
	if err != nil {
		return err
	}
	const name = "conformance-update"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"evictionrequests", "evictionrequests/status"}, Verbs: []string{"update"},
		}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: drawbridge.Namespace, Name: drawbridge.ServiceAccount}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, name, err)
		}
	}
	return nil
}

// chartValues of the shared control plane, for tests that install once more.
func chartValues() map[string]any {
	return map[string]any{
		"deployment": map[string]any{"enabled": false},
		"webhook":    map[string]any{"url": fmt.Sprintf("https://localhost:%d", drawbridge.WebhookPort)},
	}
}

// waitAuthorizationPolicy waits until somebody who may write every request, but
// delete no pod, is refused. WaitReady cannot see that: its user may do everything.
func waitAuthorizationPolicy(ctx context.Context) error {
	const user = "policy-probe"
	admin, err := clientFor(kube.Config())
	if err != nil {
		return err
	}
	if err := grant(ctx, admin, metav1.NamespaceDefault, user, writeRequests); err != nil {
		return err
	}
	config, err := kube.ConfigFor(user)
	if err != nil {
		return err
	}
	prober, err := clientFor(config)
	if err != nil {
		return err
	}
	return cluster.Wait(ctx, "ValidatingAdmissionPolicy "+authorizationPolicy, func(ctx context.Context) error {
		got := prober.Create(ctx, newRequest(metav1.NamespaceDefault), client.DryRunAll)
		if got == nil || !strings.Contains(got.Error(), authorizationPolicy) {
			return fmt.Errorf("the answer is %v", got)
		}
		return nil
	})
}

// Names of the chart's policies, which their denials begin with.
const (
	authorizationPolicy   = "evictionrequest-authorization.drawbridge.dev"
	podInterceptorsPolicy = "pod-interceptors.drawbridge.dev"
)

func clientFor(config *rest.Config) (client.Client, error) {
	return client.New(config, client.Options{Scheme: scheme})
}

// as returns a client of a real user, who may do what RBAC says.
func as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	config, err := kube.ConfigFor(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return mustClient(t, config)
}

// asAdmin returns a client of a user who may do everything.
func asAdmin(t *testing.T) client.Client {
	t.Helper()
	return mustClient(t, kube.Config())
}

// asDrawbridge returns a client of the chart's service account.
func asDrawbridge(t *testing.T) client.Client {
	t.Helper()
	config, err := kube.ConfigForServiceAccount(t.Context(), install.DefaultNamespace, install.DefaultRelease)
	if err != nil {
		t.Fatal(err)
	}
	return mustClient(t, config)
}

func mustClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := clientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Rules to grant to users.
var (
	writeRequests = rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName},
		Resources: []string{"evictionrequests"},
		Verbs:     []string{"get", "list", "create", "update", "patch", "delete", "deletecollection"},
	}
	deletePods = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}}
)

// deletePod is the permission to delete the pod of one name.
func deletePod(name string) rbacv1.PolicyRule {
	rule := *deletePods.DeepCopy()
	rule.ResourceNames = []string{name}
	return rule
}

// grant gives the rules to a user in a namespace.
func grant(ctx context.Context, admin client.Client, namespace, user string, rules ...rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	if err := admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}); err != nil {
		return fmt.Errorf("create role of %s: %w", user, err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if err := admin.Create(ctx, binding); err != nil {
		return fmt.Errorf("bind role of %s: %w", user, err)
	}
	return nil
}

// newPod is a pod that can be created.
func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}
