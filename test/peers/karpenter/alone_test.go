//go:build unix

package karpenter

import (
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

// What Karpenter does by itself, with which the other tests are compared.
func TestWithoutDrawbridge(t *testing.T) {
	alone(t)
	for name, d := range deletions {
		t.Run("a deleted NodeClaim/"+name, func(t *testing.T) {
			t.Parallel()
			d.run(t, d.alone, nil)
		})
	}
	for name, h := range hurries {
		t.Run("a deleted NodeClaim in a hurry/"+name, func(t *testing.T) {
			t.Parallel()
			h.run(t, h.alone, nil)
		})
	}
	for name, d := range drifts {
		t.Run("a drifted node/"+name, func(t *testing.T) {
			t.Parallel()
			d.drift(t, d.alone, nil)
		})
	}
	for name, d := range consolidations {
		t.Run("a consolidated node/"+name, func(t *testing.T) {
			t.Parallel()
			d.consolidate(t, d.alone, nil)
		})
	}
	t.Run("two deleted nodes", func(t *testing.T) {
		t.Parallel()
		twoNodes(t, atOnce, nil)
	})
}

// The situations in which every program is put. It comes before those that install the chart.
func TestSituations(t *testing.T) {
	alone(t)
	suite := situations.Suite{
		Kube: kube, Drainer: drainer{}, User: karpenter,
		NeverCallsOff: "a NodeClaim that is deleted does not come back",
		Record:        records.Record{Peer: peerName, Program: "Karpenter, a NodeClaim deleted", Version: must(peer.Version(programs.Folder))(t)},
	}
	t.Run("without Drawbridge", suite.Without)
	t.Run("with Drawbridge", func(t *testing.T) {
		installed(t)
		suite.With(t, inst)
	})
}
