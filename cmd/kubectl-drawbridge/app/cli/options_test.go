package cli

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

func TestTheCharacterSet(t *testing.T) {
	for name, tc := range map[string]struct {
		env   map[string]string
		ascii bool
	}{
		"nothing is said":    {nil, false},
		"UTF-8":              {map[string]string{"LANG": "en_US.UTF-8"}, false},
		"C":                  {map[string]string{"LANG": "C"}, true},
		"LC_ALL comes first": {map[string]string{"LC_ALL": "C.utf8", "LANG": "C"}, false},
	} {
		o := &Options{Getenv: func(key string) string { return tc.env[key] }}
		if o.ASCIIOnly() != tc.ascii {
			t.Errorf("%s: ascii %t, want %t", name, o.ASCIIOnly(), tc.ascii)
		}
	}
}

func TestColorsAndWidth(t *testing.T) {
	cases := map[string]struct {
		env     map[string]string
		pipe    bool
		escapes bool
		color   bool
		width   int
	}{
		"a terminal":                        {escapes: true, color: true, width: 80},
		"NO_COLOR":                          {env: map[string]string{"NO_COLOR": "1"}, escapes: true, width: 80},
		"NO_COLOR that is empty":            {env: map[string]string{"NO_COLOR": ""}, escapes: true, color: true, width: 80},
		"a dumb terminal":                   {env: map[string]string{"TERM": "dumb"}, escapes: true, width: 80},
		"a console that prints the escapes": {width: 80},
		"a pipe":                            {pipe: true, escapes: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out := &bytes.Buffer{}
			o := &Options{
				IOStreams: genericiooptions.IOStreams{Out: out},
				Size:      func() (int, int, bool) { return 80, 24, !tc.pipe },
				Escapes:   func() bool { return tc.escapes },
				Getenv:    func(key string) string { return tc.env[key] },
			}
			if err := o.PrintLines([]text.Line{{Text: "2 blocked", Tone: text.Bad}}); err != nil {
				t.Fatal(err)
			}
			want := "2 blocked\n"
			if tc.color {
				want = "\x1b[31m2 blocked\x1b[0m\n"
			}
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
			if got := o.Width(); got != tc.width {
				t.Errorf("width %d, want %d", got, tc.width)
			}
		})
	}
}
