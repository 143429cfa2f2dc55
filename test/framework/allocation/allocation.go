// Package allocation counts what a piece of code allocates. Unlike its time, that depends on
// the code alone, so a test can hold it to a limit.
package allocation

import (
	"runtime"
	"testing"
)

const (
	// batches and runs: the least of the batches counts, because what else runs in the process
	// can only add to one.
	batches, runs = 5, 100
)

// Cost is what one run allocates: how often, and how many bytes. Both are at least 0.
type Cost struct {
	Allocs, Bytes uint64
}

// Of runs work some hundred times and returns what one run allocates, rounded down. The first
// run, which may fill caches, does not count.
func Of(work func()) Cost {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	work()
	var least Cost
	for batch := range batches {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			work()
		}
		runtime.ReadMemStats(&after)
		got := Cost{(after.Mallocs - before.Mallocs) / runs, (after.TotalAlloc - before.TotalAlloc) / runs}
		if batch == 0 {
			least = got
		}
		least = Cost{min(least.Allocs, got.Allocs), min(least.Bytes, got.Bytes)}
	}
	return least
}

// AtMost fails the test if one run of work allocates more often than most says, or more bytes.
// The limits are those of a build without the race detector, which allocates, too: with it,
// work just runs.
func AtMost(t *testing.T, most Cost, work func()) {
	t.Helper()
	got := Of(work)
	t.Logf("%d allocations of %d bytes together; %d and %d at most", got.Allocs, got.Bytes, most.Allocs, most.Bytes)
	if !raceDetector && exceeds(got, most) {
		t.Errorf("%d allocations of %d bytes together, want %d of %d at most", got.Allocs, got.Bytes, most.Allocs, most.Bytes)
	}
}

func exceeds(got, most Cost) bool { return got.Allocs > most.Allocs || got.Bytes > most.Bytes }
