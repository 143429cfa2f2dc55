//go:build unix

package kubevirt

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// peerName is the name that `make test-peers` has for it.
const peerName = "kubevirt"

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
	// programs of KubeVirt. virt-controller ends when it loses its lease.
	programs *peer.Programs
	// admin may do everything.
	admin client.Client
	// guests plays virt-handler, the launchers and the guests.
	guests *handler
	scheme = cluster.Scheme()
)

func TestMain(m *testing.M) {
	flag.Parse()
	folder := peer.Folder(peerName)
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
	kube, programs = c, &peer.Programs{Cluster: c, Folder: folder}
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
	return c.LetDrain(ctx, drainers)
}

// needKubeVirt skips a test for which there is no KubeVirt.
func needKubeVirt(t *testing.T) {
	t.Helper()
	if kube == nil {
		peer.Skip(t, peerName)
	}
}

// drawbridge is the user name of the manager.
func drawbridge() string {
	return "system:serviceaccount:" + inst.Namespace + ":" + inst.ServiceAccount
}

// startManager starts a manager that is stopped at the end of the test.
func startManager(t *testing.T) *manager.Manager {
	t.Helper()
	m := inst.ForTest(t, manager.Options{Change: func(o *app.Options) {
		o.EvacuationPresets = []string{inst.Release + "-kubevirt"}
		o.DeschedulerExcept = "kubevirt.io=virt-launcher"
		o.MarkerDebounce = 2 * time.Second
	}})
	waitReady(t, "kubevirt")
	waitReady(t, "kubevirt-hotplug")
	return m
}
