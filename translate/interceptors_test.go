package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestParseInterceptors(t *testing.T) {
	many := make([]string, 16)
	for i := range many {
		many[i] = fmt.Sprintf("i%d.example.com", i)
	}
	cases := map[string]struct {
		annotation   string
		allow        []string
		want         []string
		wantProblems []string
	}{
		"nothing":                {annotation: ""},
		"white space":            {annotation: " \n"},
		"one":                    {annotation: "a.example.com", want: []string{"a.example.com"}},
		"two, the order stays":   {annotation: "b.example.com, a.example.com", want: []string{"b.example.com", "a.example.com"}},
		"a typo is skipped":      {annotation: "a.example.com,B.example.com,c.example.com", want: []string{"a.example.com", "c.example.com"}, wantProblems: []string{`"B.example.com" is not a fully qualified domain name`}},
		"a comma at the end":     {annotation: "a.example.com,", want: []string{"a.example.com"}, wantProblems: []string{"an entry is empty"}},
		"only a comma":           {annotation: ",", wantProblems: []string{"an entry is empty", "an entry is empty"}},
		"twice the same":         {annotation: "a.example.com,a.example.com", want: []string{"a.example.com"}, wantProblems: []string{`"a.example.com" is there twice`}},
		"no dot":                 {annotation: "surge", wantProblems: []string{`"surge" is not a fully qualified domain name`}},
		"a dot at the end":       {annotation: "a.example.com.", wantProblems: []string{`"a.example.com." is not a fully qualified domain name, leave out the period at the end`}},
		"a reserved name":        {annotation: "actor.k8s.io", wantProblems: []string{`"actor.k8s.io" is reserved for Kubernetes`}},
		"a reserved domain":      {annotation: "kubernetes.io", wantProblems: []string{`"kubernetes.io" is reserved for Kubernetes`}},
		"only looks reserved":    {annotation: "notk8s.io", want: []string{"notk8s.io"}},
		"a reserved name listed": {annotation: "actor.k8s.io", allow: []string{"actor.k8s.io"}, want: []string{"actor.k8s.io"}},
		"the default is never registered": {annotation: "imperative-eviction.k8s.io", allow: []string{"imperative-eviction.k8s.io"},
			wantProblems: []string{`"imperative-eviction.k8s.io" cannot be registered, it always comes last`}},
		"fifteen":                {annotation: strings.Join(many[:15], ","), want: many[:15]},
		"sixteen, the last goes": {annotation: strings.Join(many, ","), want: many[:15], wantProblems: []string{"more than 15 names"}},
		"a long one is cut in the problem": {annotation: strings.Repeat("X", 300),
			wantProblems: []string{`"` + strings.Repeat("X", 57) + `..." is not a fully qualified domain name`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, problems := translate.ParseInterceptors(tc.annotation, tc.allow...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantProblems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseInterceptors(f *testing.F) {
	for _, s := range []string{"", "a.example.com", "a.example.com,b.example.com", ",,,", "\x00.\xff", "a.k8s.io", strings.Repeat("a.b,", 40)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		names, problems := translate.ParseInterceptors(annotation)
		if len(names) > 15 {
			t.Errorf("%d names", len(names))
		}
		for i, name := range names {
			if !translate.IsFQDN(name) || strings.HasSuffix(name, ".k8s.io") || slices.Contains(names[:i], name) {
				t.Errorf("name %q must not be among %q", name, names)
			}
		}
		if strings.TrimSpace(annotation) != "" && len(names) == 0 && len(problems) == 0 {
			t.Errorf("%q names nobody, and nobody is told", annotation)
		}
		again, problems := translate.ParseInterceptors(strings.Join(names, ","))
		if !slices.Equal(names, again) || len(problems) > 0 {
			t.Errorf("%q read back is %q, problems %q", names, again, problems)
		}
	})
}
