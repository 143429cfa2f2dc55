//go:build unix

// Package evictionautoscaler puts kubectl drain into the situations of test/peers/situations in a
// cluster where Azure's eviction-autoscaler works as well.
package evictionautoscaler

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it, that of its account and of its namespace.
	peerName = "eviction-autoscaler"
	// alice drains nodes, and may do nothing else.
	alice    = "alice"
	drainers = "drainers"
)

// world has the program; nil if it is not tested.
var world *situations.World

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: peerName}}); err != nil {
			return err
		}
		if err := w.Install(ctx); err != nil {
			return err
		}
		kubeconfig, err := w.Kube.KubeconfigFileForServiceAccount(ctx, peerName, peerName)
		if err != nil {
			return err
		}
		running, err := w.Start(ctx, "manager", peer.Options{
			Log: peerName, Env: []string{"KUBECONFIG=" + kubeconfig, "ENABLED_BY_DEFAULT=true"},
			Args: []string{"--health-probe-bind-address=0"},
		})
		if err != nil {
			return err
		}
		if _, err := running.WaitLine(ctx, "Starting workers"); err != nil {
			return err
		}
		world = w
		return w.Kube.LetDrain(ctx, drainers)
	}))
}

func TestSituations(t *testing.T) {
	if world == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: world.Kube, User: alice, Surges: true,
		Drainer: &situations.Kubectl{Kube: world.Kube, As: cluster.KubectlOptions{User: alice, Groups: []string{drainers}}},
		Record: records.Record{
			Peer: peerName, Program: "Azure's eviction-autoscaler, beside kubectl drain", Version: cluster.Must(peer.Version(world.Folder))(t),
		},
	}
	suite.Run(t)
	if err := world.StillRun(); err != nil {
		t.Error(err)
	}
}
