package hookstest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

var update = flag.Bool("update", false, "write the golden files again")

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// testOptions print into the buffers.
func testOptions() (o *cli.Options, out, errOut *bytes.Buffer) {
	o = cli.DefaultOptions()
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}
	o.Clock = testingclock.NewFakeClock(now)
	return o, out, errOut
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}
