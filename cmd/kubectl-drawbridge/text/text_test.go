package text

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClean(t *testing.T) {
	for name, tc := range map[string]struct{ given, want string }{
		"words stay":                  {"42 % of 8 GiB", "42 % of 8 GiB"},
		"other scripts stay":          {"移行中 é", "移行中 é"},
		"lines become one":            {"a\r\nb\tc\n", "a  b c"},
		"codes of the terminal go":    {"\x1b[2Ja\x07\x9b", "[2Ja"},
		"nothing is turned around":    {"a\u202eb", "ab"},
		"what cannot be read is gone": {"a\xffb", "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Clean(tc.given)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		n    int
		want string
	}{
		"none takes an s":       {0, "0 pods"},
		"one takes none":        {1, "1 pod"},
		"several take one, too": {12, "12 pods"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Counted(tc.n, "pod")); diff != "" {
				t.Errorf("words (-want +got):\n%s", diff)
			}
		})
	}
}
