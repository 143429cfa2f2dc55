package version

import (
	"runtime/debug"
	"testing"
)

func TestTheVersionOfAProgram(t *testing.T) {
	cases := map[string]struct {
		linked, module string
		noInfo         bool
		want           string
	}{
		"a release says its version":                {linked: "v1.2.3", module: "v0.0.1", want: "v1.2.3"},
		"one of `go install` has its module's":      {module: "v1.2.4", want: "v1.2.4"},
		"one that was built in a checkout has none": {module: "(devel)", want: Development},
		"one without information has none":          {noInfo: true, want: Development},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			info := &debug.BuildInfo{Main: debug.Module{Version: tc.module}}
			if tc.noInfo {
				info = nil
			}
			if got := of(tc.linked, info, !tc.noInfo); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
