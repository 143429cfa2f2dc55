//go:build unix

// Package native plays Kubernetes' own API of KEP-4563 on a real API server of 1.37 that serves
// it, with Drawbridge as its controllers. Responders are a program in plain client-go that knows
// nothing of Drawbridge, or what a test reports in their name.
//
// At the end the log of the API server says that it has refused no write of ours.
package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/gocommand"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// drainers is the group of those who may drain nodes, and nothing more. responders may report
// on Evictions.
const drainers, responders = "drainers", "responders"

// readers may read what the plugin needs but for native Evictions.
const readers = "readers"

var (
	// kube is the control plane of this package.
	kube *cluster.Cluster
	// inst is the chart in it.
	inst *manager.Installation
	// admin may do everything.
	admin client.WithWatch
	// program is the responder of ./responder.
	program string

	scheme = cluster.Scheme()
)

func TestMain(m *testing.M) {
	options := cluster.Options{
		Nodes: 1, RequestLog: true,
		// Without it the API server drops spec.schedulingGroup of pods.
		FeatureGates:  map[string]bool{"GenericWorkload": true},
		RuntimeConfig: map[string]string{"scheduling.k8s.io/v1beta1": "true"},
	}.WithNative()
	os.Exit(cluster.MainThen(m, options, setup, refusals))
}

func setup(c *cluster.Cluster) (err error) {
	kube = c
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if admin, err = client.NewWithWatch(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if inst, err = manager.Install(ctx, c, manager.InstallOptions{}); err != nil {
		return err
	}
	program = c.Dir() + "/responder"
	if _, err := gocommand.Output(ctx, "", "build", "-o", program, "github.com/drawbridge-dev/drawbridge/test/e2e/native/responder"); err != nil {
		return err
	}
	return errors.Join(
		c.LetDrain(ctx, drainers), inst.LetOperate(ctx, operators),
		let(ctx, responders,
			// What the API demands of responders: Kubernetes has no role for them (C.4).
			rbacv1.PolicyRule{APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{"evictions"}, Verbs: []string{"get", "list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{lifecyclev1alpha1.GroupName}, Resources: []string{"evictions/status"}, Verbs: []string{"patch"}},
		),
		let(ctx, readers,
			rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list"}},
		),
	)
}

// let gives a group rights in all namespaces.
func let(ctx context.Context, group string, rules ...rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: group}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: group}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: group},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
	}
	return errors.Join(admin.Create(ctx, role), admin.Create(ctx, binding))
}

// refusing is part of the names of the namespaces in which a policy refuses our writes.
const refusing = "refused"

// refusals fails the run if the API server has refused a write of ours to the native API: its
// rules are obeyed, not probed. A conflict is no refusal, nor is that the object has just gone,
// nor that an API server that has just begun does not know yet what it allows all the time.
func refusals(c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := c.RequestLog().Since(ctx, 0)
	if err != nil {
		return err
	}
	var writes int
	kind := func(r cluster.Request) [3]string { return [3]string{r.Verb, r.Resource, r.Subresource} }
	allowed := map[[3]string]bool{}
	for _, r := range all.By(account()) {
		if r.Group == lifecyclev1alpha1.GroupName && r.Code < http.StatusBadRequest {
			allowed[kind(r)] = true
		}
	}
	refused := all.By(account()).Where(func(r cluster.Request) bool {
		if r.Group != lifecyclev1alpha1.GroupName || !r.Writes() {
			return false
		}
		writes++
		if strings.Contains(r.Namespace, refusing) || r.Annotations["authorization.k8s.io/decision"] == "forbid" && allowed[kind(r)] {
			return false
		}
		return r.Code >= http.StatusBadRequest && r.Code < http.StatusInternalServerError && r.Code != http.StatusConflict && r.Code != http.StatusNotFound
	})
	if writes == 0 {
		return errors.New("the log has no write to the native API")
	}
	if len(refused) > 0 {
		return fmt.Errorf("the API server refused of %d writes:\n%s", writes, refused)
	}
	fmt.Fprintf(os.Stderr, "native writes: %d, refused: none\n", writes)
	return nil
}

// account is the one that the manager acts under.
func account() string { return "system:serviceaccount:" + inst.Namespace + ":" + inst.Release }

var shared manager.Shared

// shareManager makes the test parallel and returns the manager that all parallel tests use.
func shareManager(t *testing.T) *manager.Manager {
	t.Helper()
	return shared.ForTest(t, inst, manager.Options{Change: func(o *app.Options) {
		o.MarkerDebounce, o.Taints.Enabled = 2*time.Second, true
	}})
}
