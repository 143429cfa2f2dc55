//go:build unix

package karpenter

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/audit"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// peerName is the name that `make test-peers` has for it.
const peerName = "karpenter"

// parallel is how many tests run at a time: they wait for Karpenter's times, and do little.
const parallel = "32"

var (
	kube *cluster.Cluster
	// programs of Karpenter.
	programs *peer.Programs
	// admin may do everything.
	admin  client.Client
	scheme = cluster.Scheme()
	// inst is Drawbridge's chart, nil as long as it is not installed.
	inst *manager.Installation
)

func TestMain(m *testing.M) {
	flag.Parse()
	folder := peer.Folder(peerName)
	if folder == "" {
		os.Exit(m.Run()) // Every test is skipped.
	}
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		utilruntime.Must(flag.Set("test.parallel", parallel))
	}
	os.Exit(cluster.MainThen(m, cluster.Options{RequestLog: true}.WithNative(), func(c *cluster.Cluster) (err error) {
		kube, programs = c, &peer.Programs{Cluster: c, Folder: folder}
		if admin, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		return startKarpenter(ctx, folder)
	}, func(c *cluster.Cluster) error {
		return errors.Join(programs.StillRun(), audit.After(c, install.DefaultNamespace, manager.Advances()))
	}))
}

// needKarpenter skips a test for which there is no Karpenter.
func needKarpenter(t *testing.T) {
	t.Helper()
	if kube == nil {
		peer.Skip(t, peerName)
	}
}

// alone fails a test of what happens without Drawbridge if it is there. These tests come
// first, by the name of their file.
func alone(t *testing.T) {
	t.Helper()
	needKarpenter(t)
	if inst != nil {
		t.Fatal("Drawbridge is installed already")
	}
}

var (
	shared manager.Shared
	// preparing is the interceptor of most pods under both its names, nil as long as Drawbridge
	// is not installed.
	preparing *peer.Worker
)

// installed installs the chart, if it is not there.
func installed(t *testing.T) {
	t.Helper()
	if inst != nil {
		return
	}
	inst = must(manager.Install(t.Context(), kube, manager.InstallOptions{}))(t)
	cluster.Create(t, admin, builder.EvictionInterceptor(guarded).Pods(guardLabel, "always").Guard(v1alpha1.GuardAlways).Generation(0).Obj())
	preparing = peer.NewWorker(prepares)
	for _, name := range []string{preparer, guarded} {
		if err := preparing.Start(context.WithoutCancel(t.Context()), kube, name); err != nil {
			t.Fatal(err)
		}
	}
}

// together makes the test parallel and returns the manager that all parallel tests share. The
// first of them installs the chart.
func together(t *testing.T) *manager.Manager {
	t.Helper()
	needKarpenter(t)
	installed(t)
	return shared.ForTest(t, inst, manager.Options{})
}

func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

// eventually waits for what Karpenter has to do, unless it runs no more.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	cluster.Eventually(t, what, func(ctx context.Context) error {
		if err := programs.StillRun(); err != nil {
			return waiting.InVain(err)
		}
		return check(ctx)
	})
}

// startWorker runs an interceptor of that name until the test ends.
func startWorker(t *testing.T, name string, needs time.Duration) *peer.Worker {
	t.Helper()
	w := peer.NewWorker(needs)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	if err := w.Start(ctx, kube, name); err != nil {
		t.Fatal(err)
	}
	return w
}
