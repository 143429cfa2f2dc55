package hookstest

import (
	"bytes"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// testOptions print into the buffers.
func testOptions() (o *cli.Options, out, errOut *bytes.Buffer) {
	o = cli.DefaultOptions()
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}
	o.Clock = testingclock.NewFakeClock(now)
	return o, out, errOut
}
