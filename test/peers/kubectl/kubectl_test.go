//go:build unix

// Package kubectl puts kubectl drain into the situations of test/peers/situations: the kubectl of the
// control plane, so it needs no checkout.
package kubectl

import (
	"context"
	"os"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

// peerName is the name that `make test-peers` has for it.
const peerName = "kubectl"

// alice drains nodes, and may do nothing else.
const (
	alice    = "alice"
	drainers = "drainers"
)

var kube *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		kube = w.Kube
		return kube.LetDrain(ctx, drainers)
	}))
}

func TestSituations(t *testing.T) {
	if kube == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: kube, Drainer: &situations.Kubectl{Kube: kube, As: cluster.KubectlOptions{User: alice, Groups: []string{drainers}}}, User: alice,
		Record: records.Record{Peer: peerName, Program: "kubectl drain", Version: cluster.Must(cluster.Version())(t)},
	}
	suite.Run(t)
}
