package controllers

import (
	"slices"
	"testing"
	"time"
)

func TestAnObjectThatWasLeftInPeaceIsWrittenAtOnceAgain(t *testing.T) {
	limit := WriteLimit{Free: 4, First: 10 * time.Second, Longest: 5 * time.Minute, Calm: 10 * time.Minute}
	t0 := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		before []time.Duration // When it was written, after t0.
		at     time.Duration
		want   time.Duration
	}{
		"never written":                    {nil, 0, 0},
		"twice":                            {[]time.Duration{0, 0}, 0, 0},
		"often":                            {[]time.Duration{0, 0, 0, 0}, 0, 10 * time.Second},
		"often, a moment ago":              {[]time.Duration{0, 0, 0, 0}, 4 * time.Second, 6 * time.Second},
		"often, and once more":             {[]time.Duration{0, 0, 0, 0, 10 * time.Second}, 10 * time.Second, 20 * time.Second},
		"very often":                       {slices.Repeat([]time.Duration{0}, 100), 0, 5 * time.Minute},
		"often, and then nothing for long": {[]time.Duration{0, 0, 0, 0}, limit.Calm, 0},
		"once more after nothing for long": {[]time.Duration{0, 0, 0, 0, limit.Calm}, limit.Calm, 0},
		"often, and the clock jumped back": {slices.Repeat([]time.Duration{time.Hour}, 4), 0, 5 * time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var w Writes
			for _, at := range tc.before {
				w = limit.Wrote(w, t0.Add(at))
			}
			if got := limit.Wait(w, t0.Add(tc.at)); got != tc.want {
				t.Errorf("waits %s, want %s", got, tc.want)
			}
		})
	}
}
