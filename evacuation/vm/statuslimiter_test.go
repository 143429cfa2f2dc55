package vm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A policy whose conditions change all the time, because they count pods that come and go.
func TestStatusWritesOfAPolicyAreLimited(t *testing.T) {
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	var limiter statusLimiter
	p := &policy{name: "failing", uid: "1", generation: 1}
	writes := func(from, to time.Duration) (n int) {
		for at := from; at < to; at += 500 * time.Millisecond {
			if limiter.wait(p, start.Add(at)) == 0 {
				n++
			}
		}
		return n
	}
	if diff := cmp.Diff(statusBurst, writes(0, 9*time.Second)); diff != "" {
		t.Errorf("writes at first (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(6, writes(10*time.Second, 70*time.Second)); diff != "" {
		t.Errorf("writes in the minute after (-want +got):\n%s", diff)
	}
	at := start.Add(70 * time.Second)
	if got := limiter.wait(p, at); got != 0 {
		t.Errorf("a write that is due waits for %s", got)
	}
	// A limiter counts in fractions of a write.
	if got := limiter.wait(p, at).Round(time.Millisecond); got != statusEvery {
		t.Errorf("the next one waits for %s, want %s", got, statusEvery)
	}
	p = &policy{name: "failing", uid: "1", generation: 2}
	if got := limiter.wait(p, start.Add(70*time.Second)); got != 0 {
		t.Errorf("a repaired policy waits for %s", got)
	}
	limiter.forget(p.name)
	if len(limiter.of) != 0 {
		t.Error("a policy that is gone is remembered")
	}
}
