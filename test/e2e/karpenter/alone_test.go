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
}
