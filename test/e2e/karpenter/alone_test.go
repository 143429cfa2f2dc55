//go:build unix

package karpenter

import "testing"

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
