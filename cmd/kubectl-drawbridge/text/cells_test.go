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
