package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// histogram is a histogram of Prometheus.
type histogram struct {
	// buckets have the count of all values up to the bound.
	buckets    map[float64]float64
	sum, count float64
}

// readHistogram adds up the series of a histogram whose lines have all these labels,
// each written as name="value".
func readHistogram(metrics, name string, labels ...string) (histogram, error) {
	h := histogram{buckets: map[float64]float64{}}
	for l := range strings.Lines(metrics) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(l), name+"_")
		if !ok {
			continue
		}
		kind, rest, ok := strings.Cut(rest, "{")
		end := strings.LastIndex(rest, "} ")
		if !ok || end < 0 {
			continue
		}
		series := "," + rest[:end] + ","
		if slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(series, ","+label+",") }) {
			continue
		}
		value, err := strconv.ParseFloat(rest[end+2:], 64)
		if err != nil {
			return histogram{}, fmt.Errorf("read %s: %w", name, err)
		}
		switch kind {
		case "sum":
			h.sum += value
		case "count":
			h.count += value
		case "bucket":
			_, bound, _ := strings.Cut(series, `,le="`)
			bound, _, _ = strings.Cut(bound, `"`)
			le, err := strconv.ParseFloat(bound, 64)
			if err != nil {
				return histogram{}, fmt.Errorf("read %s: %w", name, err)
			}
			h.buckets[le] += value
		}
	}
	return h, nil
}

// since is what came after an earlier reading.
func (h histogram) since(before histogram) histogram {
	later := histogram{buckets: map[float64]float64{}, sum: h.sum - before.sum, count: h.count - before.count}
	for le, n := range h.buckets {
		later.buckets[le] = n - before.buckets[le]
	}
	return later
}

// mean is NaN without values.
func (h histogram) mean() float64 { return h.sum / h.count }

// quantile estimates as histogram_quantile does: values are taken to be spread evenly
// over their bucket, and those beyond the last bound to be there. NaN without values.
func (h histogram) quantile(q float64) float64 {
	rank := q * h.buckets[math.Inf(1)]
	bounds := make([]float64, 0, len(h.buckets))
	for le := range h.buckets {
		bounds = append(bounds, le)
	}
	slices.Sort(bounds)
	if len(bounds) < 2 || h.buckets[math.Inf(1)] == 0 {
		return math.NaN()
	}
	low, below := 0.0, 0.0
	for _, le := range bounds {
		if math.IsInf(le, 1) {
			return low
		}
		if n := h.buckets[le]; n >= rank && n > below {
			return low + (le-low)*(rank-below)/(n-below)
		}
		low, below = le, h.buckets[le]
	}
	return low
}

// together adds up histograms of the same bounds.
func together(all []histogram) histogram {
	total := histogram{buckets: map[float64]float64{}}
	for _, h := range all {
		total.sum, total.count = total.sum+h.sum, total.count+h.count
		for le, n := range h.buckets {
			total.buckets[le] += n
		}
	}
	return total
}
