package pods_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

func TestDeletionCost(t *testing.T) {
	cases := map[string]struct {
		value string
		want  int32
	}{
		"a number":           {"7", 7},
		"a negative one":     {"-7", -7},
		"zero":               {"0", 0},
		"the lowest":         {"-2147483648", pods.ChosenCost},
		"the lowest but one": {"-2147483647", pods.LeavingCost},
		"too low":            {"-2147483649", 0},
		"too high":           {"2147483648", 0},
		"a plus sign":        {"+7", 0},
		"zeros before it":    {"007", 0},
		"no number":          {"cheap", 0},
		"nothing":            {"", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := pods.DeletionCost(map[string]string{corev1.PodDeletionCost: tc.value}); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
	if got := pods.DeletionCost(nil); got != 0 {
		t.Errorf("without annotations: got %d, want 0", got)
	}
}
