package drain

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// testOptions print into the buffer.
func testOptions() (o *cli.Options, out *bytes.Buffer) {
	o, out = cli.DefaultOptions(), &bytes.Buffer{}
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard}
	o.Clock = testingclock.NewFakeClock(now)
	o.Size = func() (int, int, bool) { return 0, 0, false }
	o.Escapes = func() bool { return true }
	o.Getenv = func(string) string { return "" }
	return o, out
}

func TestJoinKeepsWhatIsNotSaid(t *testing.T) {
	two, three := int32(2), int32(3)
	selector := v1alpha1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	current := v1alpha1.NodeMaintenanceSpec{Cordon: true, Reason: "old", MaxParallelNodes: &two}
	cases := map[string]struct{ wanted, want v1alpha1.NodeMaintenanceSpec }{
		"nothing said":    {v1alpha1.NodeMaintenanceSpec{NodeSelector: selector}, v1alpha1.NodeMaintenanceSpec{NodeSelector: selector, Cordon: true, Drain: true, Reason: "old", MaxParallelNodes: &two}},
		"everything said": {v1alpha1.NodeMaintenanceSpec{NodeSelector: selector, Reason: "new", MaxParallelNodes: &three}, v1alpha1.NodeMaintenanceSpec{NodeSelector: selector, Cordon: true, Drain: true, Reason: "new", MaxParallelNodes: &three}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, join(current, tc.wanted)); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}
