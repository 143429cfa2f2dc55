package main

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGrown(t *testing.T) {
	const goal = "<= 1.3 per unit"
	for name, test := range map[string]struct {
		small, large           float64
		smallUnits, largeUnits int
		want                   line
	}{
		"as fast as the cluster": {10, 100, 5, 50, line{what: "cost", ours: "100 for 50 pods", theirs: "10 for 5 pods", ratio: "1.00", goal: goal, met: new(true)}},
		"faster":                 {10, 200, 5, 50, line{what: "cost", ours: "200 for 50 pods", theirs: "10 for 5 pods", ratio: "2.00", goal: goal, met: new(false)}},
		"of one":                 {10, 12, 1, 1, line{what: "cost", ours: "12", theirs: "10", ratio: "1.20", goal: goal, met: new(true)}},
		"from nothing":           {0, 1, 5, 50, line{what: "cost", ours: "1 for 50 pods", theirs: "0 for 5 pods", goal: goal, met: new(false)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := grown("cost", "pods", test.small, test.large, test.smallUnits, test.largeUnits, func(v float64) string { return fmt.Sprint(v) })
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(line{})); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}
