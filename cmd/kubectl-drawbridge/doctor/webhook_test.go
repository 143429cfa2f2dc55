package doctor

import (
	"strings"
	"testing"
)

func TestProblemsOfTheProbeAreExplained(t *testing.T) {
	cases := map[string]string{
		"the API server did not call the webhook probe.drawbridge.dev":           `see "webhook"`,
		"tls: failed to verify certificate: x509: certificate signed by unknown": `see "certificate"`,
		`no endpoints available for service "drawbridge-webhook"`:                `see "replicas"`,
		"dial tcp 127.0.0.1:9: connect: connection refused":                      `see "replicas"`,
		`service "drawbridge-webhook" not found`:                                 "The Service of the webhook is missing",
		"context deadline exceeded":                                              "network policies",
		"something that nobody has seen":                                         "docs/runbooks/webhook-down.md",
	}
	for problem, do := range cases {
		f := fine()
		f.Probe = &Probe{Problem: problem}
		r := only(t, f, "reachable")
		if r.Severity != Fail || !strings.Contains(r.Findings[0].Do, do) {
			t.Errorf("%s: %s, %+v", problem, r.Severity, r.Findings)
		}
	}
}
