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

func TestASecondWriterOfTheAuthorityIsFound(t *testing.T) {
	cases := map[string]struct {
		annotations map[string]string
		want        Severity
	}{
		"nobody asks the injector":              {map[string]string{"cert-manager.io/certificate-name": "web"}, OK},
		"the authority of a Certificate":        {map[string]string{"cert-manager.io/inject-ca-from": "drawbridge-system/drawbridge-webhook"}, Warn},
		"the authority in a Secret":             {map[string]string{"cert-manager.io/inject-ca-from-secret": "drawbridge-system/drawbridge-webhook-cert"}, Warn},
		"the API server's authority":            {map[string]string{"cert-manager.io/inject-apiserver-ca": "true"}, Warn},
		"an annotation that is there and empty": {map[string]string{"cert-manager.io/inject-ca-from": ""}, OK},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.Validating[0].Annotations = tc.annotations
			if r := only(t, f, "certificate"); r.Severity != tc.want {
				t.Errorf("want %s, got %s, %+v", tc.want, r.Severity, r.Findings)
			}
		})
	}
}
