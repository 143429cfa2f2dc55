//go:build unix

package kubevirt

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// folderVariable names the folder with KubeVirt's programs and objects.
const folderVariable = "DRAWBRIDGE_KUBEVIRT"

const (
	// patience is how long a test waits for what must happen.
	patience = 3 * time.Minute
	// drainers is the group of those who may drain nodes, and nothing more.
	drainers = "drainers"
)

var (
	// kube is the control plane, and inst the chart in it.
	kube *cluster.Cluster
	inst *manager.Installation
	// admin may do everything.
	admin client.Client
	// guests plays virt-handler, the launchers and the guests.
	guests *handler
	scheme = runtime.NewScheme()
)

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	flag.Parse()
	folder := os.Getenv(folderVariable)
	if folder == "" {
		os.Exit(m.Run()) // Every test is skipped.
	}
	os.Exit(run(m, folder))
}

// run has the tests run on a control plane with KubeVirt.
func run(m *testing.M, folder string) int {
	certificates, err := newCertificates()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(certificates.dir) }() // It is a temporary one.
	options := cluster.Options{Nodes: 1, RequestLog: true, APIServerArgs: certificates.aggregatorArgs()}
	return cluster.Main(m, options, func(c *cluster.Cluster) error {
		return setup(c, folder, certificates)
	})
}

// setup prepares what all tests share.
func setup(c *cluster.Cluster, folder string, certificates *certificates) (err error) {
	kube = c
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if admin, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := startKubeVirt(ctx, folder, certificates); err != nil {
		return err
	}
	inst, err = manager.Install(ctx, c, manager.InstallOptions{Values: map[string]any{
		"vm": map[string]any{"kubevirt": map[string]any{"enabled": true, "retryLimit": retryLimit}},
	}})
	if err != nil {
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
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: drainers},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: drainers},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: drainers}},
	}
	return errors.Join(admin.Create(ctx, role), admin.Create(ctx, binding))
}

// needKubeVirt skips a test for which there is no KubeVirt.
func needKubeVirt(t *testing.T) {
	t.Helper()
	if kube == nil {
		t.Skipf("%s names no folder with KubeVirt's programs: see hack/kubevirt/README.md", folderVariable)
	}
}

// drawbridge is the user name of the manager.
func drawbridge() string {
	return "system:serviceaccount:" + inst.Namespace + ":" + inst.ServiceAccount
}

// startManager starts a manager that is stopped at the end of the test.
func startManager(t *testing.T) *manager.Manager {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := inst.Start(ctx, manager.Options{Change: func(o *app.Options) {
		o.EvacuationPresets = []string{inst.Release + "-kubevirt"}
		o.DeschedulerExcept = "kubevirt.io=virt-launcher"
		o.MarkerDebounce = 2 * time.Second
	}})
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { stopManager(t, m) }) })
	waitReady(t, "kubevirt")
	waitReady(t, "kubevirt-hotplug")
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
	// The test's own context may have ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// path of a file of the folder.
func path(folder, name string) (string, error) {
	file := filepath.Join(folder, name)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%s is to have virt-api, virt-controller and objects.yaml: %w", folderVariable, err)
	}
	return file, nil
}
