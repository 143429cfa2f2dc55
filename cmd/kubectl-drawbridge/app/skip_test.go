package app

import (
	"strings"
	"testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestWhatCanBeSkipped(t *testing.T) {
	const a, b = "a.example.com", "b.example.com"
	er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors(a, b)
	cases := map[string]struct {
		er   *builder.EvictionRequestWrapper
		name string
		want string
	}{
		"the one whose turn it is": {er.Clone().Active(a, now), a, ""},
		"one whose turn comes":     {er.Clone().Active(a, now), b, "it is not the turn of b.example.com but of a.example.com"},
		"one who is not there":     {er.Clone().Active(a, now), "x.example.com", "does not intercept this pod; those who do are a.example.com, b.example.com"},
		"the last one":             {er.Clone().Processed(a, b).Active(v1alpha1.ImperativeEvictionInterceptor, now), v1alpha1.ImperativeEvictionInterceptor, "cannot be skipped"},
		"after the end":            {er.Clone().Processed(a).Canceled(v1alpha1.ReasonNoRequesters, now), a, "it is nobody's turn: the request is canceled"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := skippable(tc.er.Obj(), tc.name); err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}
