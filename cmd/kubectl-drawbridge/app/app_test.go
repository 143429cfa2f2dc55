package app

import (
	"bytes"
	"strings"
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
