package garbage

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPercent(t *testing.T) {
	tests := map[string]struct {
		live uint64
		want int
	}{
		"nothing in use yet":            {0, 400},
		"a small cluster":               {8 << 20, 400},
		"as much as the usual garbage":  {48 << 20, 100},
		"between the bounds":            {64 << 20, 75},
		"a large cluster":               {300 << 20, 50},
		"more than there can be in use": {1 << 63, 50},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Percent(tt.live)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is in use grows, and the next collections see it.
func TestEachCollectionAdjusts(t *testing.T) {
	percents := make(chan int, 1000)
	p := &pacer{set: func(percent int) int {
		percents <- percent
		return 0
	}}
	p.arm()
	collectUntil(t, percents, func(percent int) bool { return percent > least })
	inUse := make([]byte, 200<<20)
	collectUntil(t, percents, func(percent int) bool { return percent == least })
	runtime.KeepAlive(inUse)
}

// collectUntil collects until a percent is set that is wanted; the test's own deadline ends it.
func collectUntil(t *testing.T, percents <-chan int, wanted func(int) bool) {
	t.Helper()
	for t.Context().Err() == nil {
		runtime.GC()
		select {
		case percent := <-percents:
			if wanted(percent) {
				return
			}
		default:
			runtime.Gosched()
		}
	}
}
