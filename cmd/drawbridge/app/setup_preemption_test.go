package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPreemptionOptions(t *testing.T) {
	cases := map[string]struct {
		change func(*PreemptionOptions)
		want   string
	}{
		"switched off":                {change: func(*PreemptionOptions) {}},
		"switched on":                 {change: func(p *PreemptionOptions) { p.Enabled = true }},
		"everything":                  {change: func(p *PreemptionOptions) { p.Enabled, p.GuardDeletes, p.Stamped = true, true, true }},
		"a token only":                {change: func(p *PreemptionOptions) { p.Enabled, p.ClientCA, p.TokenFile, p.Users = true, "", "/token", nil }},
		"a port out of range":         {func(p *PreemptionOptions) { p.Port = 0 }, "--preemption-port must be between 1 and 65535, not 0"},
		"the port of the webhook":     {func(p *PreemptionOptions) { p.Enabled, p.Port = true, 9443 }, "--preemption-port must not be --webhook-port (9443)"},
		"no time for an answer":       {func(p *PreemptionOptions) { p.Timeout = -time.Second }, "--preemption-timeout must be positive, not -1s"},
		"a ConfigMap without a name":  {func(p *PreemptionOptions) { p.ClientCA = "kube-system" }, `--preemption-client-ca: "kube-system" is not the namespace/name of a ConfigMap`},
		"a ConfigMap that is no name": {func(p *PreemptionOptions) { p.ClientCA = "a/b/c" }, `--preemption-client-ca: "a/b/c" is not the namespace/name of a ConfigMap`},
		"certificates in nobody's":    {func(p *PreemptionOptions) { p.Users = nil }, "--preemption-user: client certificates are accepted, but in nobody's name"},
		"an empty user":               {func(p *PreemptionOptions) { p.Users = []string{""} }, "--preemption-user: a name is empty"},
		"deletions without decisions": {func(p *PreemptionOptions) { p.GuardDeletes = true }, "--preemption-guard-deletes needs --preemption"},
		"nothing to know the scheduler": {
			func(p *PreemptionOptions) { p.Enabled, p.ClientCA = true, "" },
			"--preemption needs --preemption-client-ca or --preemption-token-file: without, the scheduler could not be told from anybody else",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.Namespace = "drawbridge-system"
			tc.change(&o.Preemption)
			got := ""
			if err := o.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
