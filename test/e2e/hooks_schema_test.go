//go:build unix

package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What a hook may say, as the API server decides it. charts has more of the URLs.
func TestMalformedHooksAreRefused(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	url := func(url string) string { return `{"http":{"url":"` + url + `"}}` }
	waiting := func(more string) string { return strings.Replace(waits, "{", "{"+more+",", 1) }
	for name, tc := range map[string]struct {
		name, spec, want string
	}{
		"no action":             {"", `{}`, "exactly one of job, exec, http and wait must be given"},
		"two actions":           {"", strings.TrimSuffix(runsJob, "}") + "," + strings.TrimPrefix(execs, "{"), "exactly one of job, exec, http and wait must be given"},
		"an undo of nothing":    {"", after(`{}`), "exactly one of job, exec and http must be given"},
		"two undos":             {"", after(strings.TrimSuffix(runsJob, "}") + "," + strings.TrimPrefix(execs, "{")), "exactly one of job, exec and http must be given"},
		"an undo that waits":    {"", after(waits), "exactly one of job, exec and http must be given"},
		"no time":               {"", waiting(`"deadline":"0s"`), "deadline must be at least 1s and at most 24h"},
		"more than a day":       {"", waiting(`"deadline":"25h"`), "deadline must be at least 1s and at most 24h"},
		"a time that is none":   {"", waiting(`"deadline":"soon"`), "deadline"},
		"a minimum of nothing":  {"", waiting(`"minimum":"0s"`), "minimum must be at least 1s and at most 24h"},
		"a skip at no time":     {"", waiting(`"onShortNotice":"Skip"`), "onShortNotice needs a minimum"},
		"an unknown loss":       {"", waiting(`"onNodeLost":"Evict"`), "onNodeLost"},
		"a key with no domain":  {"", waiting(`"nativeKey":"dump"`), "nativeKey must be a domain, '/' and"},
		"a key of Kubernetes":   {"", waiting(`"nativeKey":"a.k8s.io/dump"`), "no key under k8s.io or kubernetes.io"},
		"eleven more attempts":  {"", waiting(`"retries":11`), "retries"},
		"a failure that evicts": {"", waiting(`"onFailure":"Evict"`), "onFailure"},
		"a name of 64":          {strings.Repeat("a", 64), waits, "metadata.name must have at most 63 characters"},
		"a job of nothing":      {"", `{"job":{}}`, "spec.job.template"},
		"a template in words":   {"", `{"job":{"template":"a Job"}}`, "spec.job.template"},
		"no command":            {"", `{"exec":{"command":[]}}`, "spec.exec.command"},
		"no condition":          {"", `{"wait":{}}`, "spec.wait.until"},
		"a template of one":     {"", `{"wait":{"until":"${true}"}}`, "here write the expression alone"},
		"another method":        {"", `{"http":{"url":"https://example.com/","method":"CONNECT"}}`, "spec.http.method"},
		"cloud metadata":        {"", url("http://169.254.169.254/"), "must not be of loopback, of a link-local address"},
		"localhost":             {"", url("https://localhost/"), "must not be of loopback"},
		"loopback":              {"", url("https://127.0.0.1/"), "must not be of loopback"},
		"loopback of IPv6":      {"", url("https://[::1]/"), "must not be of loopback"},
		"loopback, mapped":      {"", url("https://[::ffff:127.0.0.1]/"), "must not be of loopback"},
		"loopback as a number":  {"", url("https://2130706433/"), "the host of url must be a DNS name or an IP address"},
		"the API server":        {"", url("https://kubernetes.default.svc/"), "must not be of the API server"},
		"a password":            {"", url("https://a:b@example.com/"), "must have no user and no password"},
		"another scheme":        {"", url("ftp://example.com/"), "must be an absolute URL with the scheme https or http"},
		"the world without TLS": {"", url("http://example.com/"), "url without TLS must be of the pod itself"},
		"such a URL as an undo": {"", after(url("https://localhost/")), "must not be of loopback"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.name == "" {
				tc.name = "new"
			}
			err := admin.Create(t.Context(), hookOf(t, namespace, tc.name, tc.spec), client.DryRunAll)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want it to be invalid with %q, got %v", tc.want, err)
			}
		})
	}
	for name, tc := range map[string]struct{ name, spec string }{
		"a name of 63":   {strings.Repeat("a", 63), waits},
		"a second":       {"new", waiting(`"deadline":"1s"`)},
		"a day":          {"new", waiting(`"deadline":"24h"`)},
		"a minimum":      {"new", waiting(`"minimum":"1m","onShortNotice":"Skip"`)},
		"a lost node":    {"new", waiting(`"onNodeLost":"Interrupt"`)},
		"every action":   {"new", strings.Replace(runsJob, "{", `{"undo":`+sends+`,`, 1)},
		"a computed URL": {"new", url("${'https://localhost/'}")}, // It is checked when the request is sent.
	} {
		if err := admin.Create(t.Context(), hookOf(t, namespace, tc.name, tc.spec), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
