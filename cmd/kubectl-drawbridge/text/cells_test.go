package text

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCells(t *testing.T) {
	cases := map[string]struct {
		text string
		n    int
		want string
	}{
		"short texts are filled":    {"ab", 4, "ab  "},
		"long ones are cut":         {"abcdef", 4, "abc…"},
		"wide characters take two":  {"日本", 5, "日本 "},
		"and are not halved":        {"日本語", 4, "日… "},
		"marks take none":           {"e\u0301e", 3, "e\u0301e "},
		"nothing fits into nothing": {"abc", 0, ""},
		"emoji are wide":            {"🚀x", 3, "🚀x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Fit(tc.text, tc.n)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamesAreCutInTheMiddle(t *testing.T) {
	cases := map[string]struct {
		text string
		n    int
		want string
	}{
		"short names are filled":    {"web-0", 7, "web-0  "},
		"both ends of others stay":  {"storefront-6fcbf75594-q28jh", 12, "storef…q28jh"},
		"the front has one more":    {"abcdefgh", 6, "abc…gh"},
		"wide characters stay":      {"日本語日本語", 7, "日…語  "},
		"no mark without its base":  {"abcde\u0301fg", 5, "ab…fg"},
		"a mark stays with its one": {"abcdefe\u0301", 4, "ab…e\u0301"},
		"one column is the sign":    {"abc", 1, "…"},
		"nothing fits into nothing": {"abc", 0, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, FitMiddle(tc.text, tc.n)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTextsAreWrapped(t *testing.T) {
	cases := map[string]struct {
		text string
		n    int
		want []string
	}{
		"it fits":                {"be evicted at once", 18, []string{"be evicted at once"}},
		"between words":          {"be evicted at once", 12, []string{"be evicted", "at once"}},
		"long words":             {"by imperative-eviction.k8s.io", 10, []string{"by", "imperative", "-eviction.", "k8s.io"}},
		"wide characters":        {"日本語", 4, []string{"日本", "語"}},
		"nothing":                {"", 4, []string{""}},
		"there is hardly a room": {"日本", 0, []string{"日", "本"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Wrap(tc.text, tc.n)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
