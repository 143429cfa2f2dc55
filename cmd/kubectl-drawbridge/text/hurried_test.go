package text

import (
	"testing"
	"time"
)

func TestHurried(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		message  string
		deadline time.Time
		want     string
	}{
		"there is no deadline":  {"copying", time.Time{}, "copying"},
		"one is ahead":          {"copying", now.Add(25*time.Second + time.Millisecond), "25s left: copying"},
		"it has come":           {"copying", now, "no time left: copying"},
		"there is nothing said": {"", now.Add(time.Hour), "60m left"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Hurried(tc.message, tc.deadline, now); got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}
