package state

import (
	"strings"
	"testing"
)

func TestSkew(t *testing.T) {
	cases := map[string]struct{ plugin, manager, says string }{
		"the same":                         {"v0.1.0", "0.1.0", ""},
		"patches do not matter":            {"v0.1.3", "0.1.0", ""},
		"an older manager":                 {"v0.2.0", "0.1.9", "the manager (0.1.9) is older than this plugin (v0.2.0)"},
		"a newer manager":                  {"v0.2.0", "1.0.0", "the manager (1.0.0) is newer than this plugin (v0.2.0)"},
		"a plugin that was not released":   {"development", "0.1.0", ""},
		"a manager that says no version":   {"v0.1.0", "", ""},
		"a manager with an invented label": {"v0.1.0", "<script>", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gap, ok := skew(tc.plugin, tc.manager)
			if ok != (tc.says != "") || !strings.Contains(gap.Why, tc.says) {
				t.Errorf("want %q, got %v %q", tc.says, ok, gap.Why)
			}
		})
	}
}
