//go:build unix

// Package e2e drains nodes with the real kubectl, on a real control plane, past
// Drawbridge as its users install it: the chart, the manager under the chart's
// service account, and interceptors that are programs of their own.
//
// One API server has one webhook configuration, so one manager at a time. A test
// that starts, kills or advances a manager runs before all others, one after the
// other (startManager). The rest is parallel and shares a manager (shareManager).
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/audit"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

const (
	// patience is how long a test waits for what must happen.
	patience = 3 * time.Minute
	// parallel tests at a time: they mostly wait, for kubectl's next try above all.
	parallel = "16"
	// drainers is the group of those who may drain nodes, and nothing more.
	drainers = "drainers"
)

var (
	// kube is the control plane of this package.
	kube *cluster.Cluster
	// inst is the chart in it.
	inst *manager.Installation
	// admin may do everything.
	admin client.Client
	// scheme knows Kubernetes' types and ours.
	scheme = runtime.NewScheme()
)

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // Its absence would be complained about half a minute into the tests.
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		utilruntime.Must(flag.Set("test.parallel", parallel))
	}
	os.Exit(cluster.MainThen(m, cluster.Options{Nodes: 1, RequestLog: true, LocalExec: true}, setup, func(c *cluster.Cluster) error {
		return errors.Join(auditPermissions(c), audit.After(c, inst.Namespace, manager.Advances()))
	}))
}

// setup prepares what all tests share.
func setup(c *cluster.Cluster) (err error) {
	kube = c
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if admin, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := createOldPods(ctx); err != nil {
		return err
	}
	if err := installPlatforms(ctx); err != nil {
		return err
	}
	if inst, err = manager.Install(ctx, c, manager.InstallOptions{Values: withPlatforms}); err != nil {
		return err
	}
	return createDrainers(ctx)
}

// createDrainers lets a group do what kubectl drain does.
func createDrainers(ctx context.Context) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: drainers},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
			{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}},
		},
	}
	if err := admin.Create(ctx, role); err != nil {
		return fmt.Errorf("create role of the drainers: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: drainers},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: drainers},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: drainers}},
	}
	if err := admin.Create(ctx, binding); err != nil {
		return fmt.Errorf("bind role of the drainers: %w", err)
	}
	return nil
}

// drawbridge is the user name of the manager.
func drawbridge() string {
	return "system:serviceaccount:" + inst.Namespace + ":" + inst.ServiceAccount
}

// startManager starts a manager of the test's own, which is stopped at its end. The
// test must not be parallel: nothing but its own calls reach the webhook then.
func startManager(t *testing.T, change func(*app.Options)) *manager.Manager {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := inst.Start(ctx, manager.Options{Change: withPresets(change)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopManager(t, m) })
	return m
}

// stopManager shuts a manager down, if the test has not done so.
func stopManager(t *testing.T, m *manager.Manager) {
	t.Helper()
	select {
	case <-m.Done():
		return
	default:
	}
	// The test's own context has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// sharedDebounce is how long the markers of a node are gone before a drain counts
// as called off, for the shared manager.
const sharedDebounce = 2 * time.Second

var shared struct {
	sync.Mutex
	manager *manager.Manager
	users   int
}

// shareManager makes the test parallel and returns the manager that all parallel
// tests use, with the real clock and the constants of production but for the
// debounce of markers and the wait of maintenances. It runs until the last of them has ended.
func shareManager(t *testing.T) *manager.Manager {
	t.Helper()
	t.Parallel()
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		m, err := inst.Start(ctx, manager.Options{Change: withPresets(func(o *app.Options) {
			o.MarkerDebounce, o.Maintenance.EvacuationWait = sharedDebounce, sharedEvacuationWait
		})})
		if err != nil {
			t.Fatal(err)
		}
		shared.manager = m
	}
	shared.users++
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			stopManager(t, shared.manager)
		}
	})
	return shared.manager
}
