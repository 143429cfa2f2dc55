package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestWhoHoldsARequest(t *testing.T) {
	cases := map[string]struct {
		finalizers []string
		want       string
	}{
		"one":                  {[]string{"a/x"}, "a/x"},
		"as many as are named": {[]string{"a/x", "b/x", "c/x"}, "a/x, b/x, c/x"},
		"one more":             {[]string{"a/x", "b/x", "c/x", "d/x"}, "a/x, b/x, c/x, ..."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			er := &v1alpha1.EvictionRequest{}
			er.Finalizers = tc.finalizers
			if diff := cmp.Diff(tc.want, holders(er)); diff != "" {
				t.Errorf("holders (-want +got):\n%s", diff)
			}
		})
	}
}
