//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAMedianIsToldWithItsSpread(t *testing.T) {
	tests := map[string]struct {
		values []time.Duration
		want   string
	}{
		"of one round":    {[]time.Duration{1234 * time.Microsecond}, "1.23 ms"},
		"of three rounds": {[]time.Duration{3 * time.Millisecond, time.Millisecond, 5 * time.Millisecond}, "3.00 ms (1.00 ms to 5.00 ms)"},
		"of two":          {[]time.Duration{3 * time.Millisecond, time.Millisecond}, "2.00 ms (1.00 ms to 3.00 ms)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, spread(tt.values, hundredths)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
