package drain

import (
	"strings"
	"testing"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestWhereAViewCannotBeDrawnLinesArePrinted(t *testing.T) {
	m := builder.NodeMaintenance("kernel").Drain().Obj()
	m.Status.Nodes = []v1alpha1.MaintenanceNodeStatus{{Name: "node-1", Stage: v1alpha1.StageDrain, PodsPendingEvacuation: 2}}
	const lines, view, color = "node/node-1 draining, 2 pods to go\n", "\x1b[2K", "\x1b[31m"
	cases := map[string]struct {
		env     map[string]string
		nowhere bool // Not on a terminal.
		escapes bool
		want    string
		not     string
	}{
		"a terminal":                        {escapes: true, want: color},
		"a terminal, without colors":        {env: map[string]string{"NO_COLOR": "1"}, escapes: true, want: view, not: color},
		"a dumb terminal":                   {env: map[string]string{"TERM": "dumb"}, escapes: true, want: lines, not: "\x1b"},
		"a console that prints the escapes": {want: lines, not: "\x1b"},
		"a file":                            {nowhere: true, escapes: true, want: lines, not: "\x1b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out := testOptions()
			o.Size = func() (int, int, bool) { return 80, 24, !tc.nowhere }
			o.Escapes = func() bool { return tc.escapes }
			o.Getenv = func(name string) string { return tc.env[name] }
			f := &follower{Options: o, terminal: terminal(o)}
			if err := f.show(snapshot{Maintenance: m, Trouble: "nobody works"}); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); !strings.Contains(got, tc.want) || tc.not != "" && strings.Contains(got, tc.not) {
				t.Errorf("printed %q, want %q in it and not %q", got, tc.want, tc.not)
			}
		})
	}
}
