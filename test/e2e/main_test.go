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
	"os"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	scheme = cluster.Scheme()
)

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		utilruntime.Must(flag.Set("test.parallel", parallel))
	}
	utilruntime.Must(playPrograms())
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
	return c.LetDrain(ctx, drainers)
}

// drawbridge is the user name of the manager.
func drawbridge() string {
	return "system:serviceaccount:" + inst.Namespace + ":" + inst.ServiceAccount
}

// startManager starts a manager of the test's own, which is stopped at its end. The
// test must not be parallel: nothing but its own calls reach the webhook then.
func startManager(t *testing.T, change func(*app.Options)) *manager.Manager {
	t.Helper()
	return inst.ForTest(t, manager.Options{Change: withPresets(change)})
}

// sharedDebounce is how long the markers of a node are gone before a drain counts
// as canceled, for the shared manager.
const sharedDebounce = 2 * time.Second

var shared manager.Shared

// shareManager makes the test parallel and returns the manager that all parallel
// tests use, with the real clock and the constants of production but for the
// debounce of markers and the wait of maintenances. It runs until the last of them has ended.
func shareManager(t *testing.T) *manager.Manager {
	t.Helper()
	return shared.ForTest(t, inst, manager.Options{Change: withPresets(func(o *app.Options) {
		o.MarkerDebounce, o.Maintenance.EvacuationWait = sharedDebounce, sharedEvacuationWait
		o.Deadlines.Patience = map[string]string{"managed-upgrade": "1h"}
	})})
}
