package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	for name, test := range map[string]struct {
		buckets map[float64]float64
		q, want float64
	}{
		"halfway into the first bucket":        {map[float64]float64{0.005: 100, 0.025: 100, inf: 100}, 0.5, 0.0025},
		"in the second bucket":                 {map[float64]float64{0.005: 50, 0.025: 100, inf: 100}, 0.75, 0.015},
		"an empty bucket is passed":            {map[float64]float64{0.005: 0, 0.025: 0, 0.1: 10, inf: 10}, 1, 0.1},
		"beyond the last bound it is the last": {map[float64]float64{0.005: 1, 0.025: 1, inf: 10}, 0.99, 0.025},
		"no values are no number":              {map[float64]float64{0.005: 0, inf: 0}, 0.5, math.NaN()},
		"no buckets are no number":             {nil, 0.5, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			got := histogram{buckets: test.buckets}.quantile(test.q)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("quantile (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadHistogram(t *testing.T) {
	const before = `# TYPE took histogram
took_bucket{name="ours",rejected="false",le="0.005"} 1
took_bucket{name="ours",rejected="false",le="+Inf"} 2
took_sum{name="ours",rejected="false"} 0.5
took_count{name="ours",rejected="false"} 2
`
	const after = before + `took_bucket{name="ours",rejected="true",le="0.005"} 3
took_bucket{name="ours",rejected="true",le="+Inf"} 4
took_sum{name="ours",rejected="true"} 1.5
took_count{name="ours",rejected="true"} 4
took_bucket{name="theirs",rejected="true",le="+Inf"} 9
other_count{name="ours"} 7
`
	first, err := readHistogram(before, "took", `name="ours"`)
	if err != nil {
		t.Fatal(err)
	}
	second, err := readHistogram(after, "took", `name="ours"`)
	if err != nil {
		t.Fatal(err)
	}
	want := histogram{buckets: map[float64]float64{0.005: 3, math.Inf(1): 4}, sum: 1.5, count: 4}
	if diff := cmp.Diff(want, second.since(first), cmp.AllowUnexported(histogram{})); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}
