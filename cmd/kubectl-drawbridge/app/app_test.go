package app

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// testOptions print into the buffers.
func testOptions() (o commands, out, errOut *bytes.Buffer) {
	o = commands{cli.DefaultOptions()}
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}
	o.Clock = testingclock.NewFakeClock(now)
	o.Size = func() (int, int, bool) { return 0, 0, false }
	o.Escapes = func() bool { return true }
	o.Getenv = func(string) string { return "" }
	return o, out, errOut
}

func TestVersionSaysWhoMovesNativeEvictions(t *testing.T) {
	for want, v := range map[string]Versions{
		"Native API: not served\n":                                       {Client: "v0.1.0", Server: "v1.36.0"},
		"Native API: lifecycle.k8s.io/v1alpha1, in charge: Drawbridge\n": {Client: "v0.1.0", Server: "v1.37.2", NativeAPI: "lifecycle.k8s.io/v1alpha1", NativeInCharge: "Drawbridge"},
	} {
		o, out, _ := testOptions()
		if err := o.printVersions(v); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("error %v, want %q in:\n%s", err, want, out)
		}
	}
}
