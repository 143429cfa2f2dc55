//go:build unix

package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/cluster"
)

// seedsEnv has further seeds to run, separated by commas.
const seedsEnv = "DRAWBRIDGE_CHAOS_SEEDS"

// The short version of `make chaos`, and the proof that it can fail.
func TestDrainsUnderFire(t *testing.T) {
	c := cluster.ForTest(t, ClusterOptions())
	world, err := NewWorld(t.Context(), c, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("every promise is kept", func(t *testing.T) { keepsPromises(t, world) })
	t.Run("a manager that skips interceptors does not go unnoticed", func(t *testing.T) {
		if err := world.Rebuild(t.Context(), "chaosbug"); err != nil {
			t.Fatal(err)
		}
		judged(t, world, 3, func(v Verdict) bool {
			return slices.ContainsFunc(v.Violations, func(violation Violation) bool { return violation.Promise == PromiseDone })
		})
	})
}

// judged runs a seed and returns the verdict. What happened is told if it is not as wanted.
func judged(t *testing.T, world *World, seed uint64, wanted func(Verdict) bool) Verdict {
	t.Helper()
	h, err := world.Run(t.Context(), MakePlan(seed))
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	v := Check(h)
	t.Logf("seed %d: %s", seed, v)
	if !wanted(v) {
		path := filepath.Join(world.Cluster.Dir(), "logs", "timeline-"+strconv.FormatUint(seed, 10)+".txt") // Kept with the logs.
		if err := os.WriteFile(path, []byte(h.Plan.String()+h.Timeline()), 0o600); err != nil {
			t.Error(err)
		}
		t.Errorf("seed %d: %v\n%s", seed, v.Violations, &h.Plan)
	}
	return v
}

func keepsPromises(t *testing.T, world *World) {
	t.Helper()
	seeds := []uint64{3, 5, 8}
	for text := range strings.SplitSeq(os.Getenv(seedsEnv), ",") {
		if text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s must be seeds separated by commas: %v", seedsEnv, err)
		}
		seeds = append(seeds, seed)
	}
	intercepted := 0
	for _, seed := range seeds {
		v := judged(t, world, seed, func(v Verdict) bool { return len(v.Violations) == 0 })
		intercepted += v.Intercepted
	}
	if intercepted == 0 {
		t.Error("no intercepted pod was evicted, so nothing was proved")
	}
}
