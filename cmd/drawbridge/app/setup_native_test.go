package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Otherwise native.drawbridge.dev would be passed over while native responders work.
func TestNativeResponderReportsWithinTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct{ deadline, want time.Duration }{
		"the default deadline":     {20 * time.Minute, 3 * time.Minute},
		"a short one":              {6 * time.Minute, 2 * time.Minute},
		"the shortest":             {2 * time.Minute, time.Minute},
		"one that nobody can keep": {8 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.Policy.HeartbeatDeadline = tc.deadline
			if diff := cmp.Diff(tc.want, nativePolicy(o).HeartbeatInterval); diff != "" {
				t.Errorf("time between two reports (-want +got):\n%s", diff)
			}
		})
	}
}
