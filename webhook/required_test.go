package webhook

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is missing must not turn into "anybody may": the manager does not start.
func TestTheWebhooksAreNotServedWhileSomethingIsMissing(t *testing.T) {
	w := newWorld(t)
	d := newGuardedMux(w)
	create := func(c Config) error {
		_, _, err := NewEvictionHandler(c)
		return err
	}
	serve := func(authn *Authenticator, bodies *BodyLimit, status *StatusHandler) error {
		return Register(d, authn, bodies, w.handler, status, &ProbeHandler{})
	}
	cases := map[string]struct {
		err  error
		want []string
	}{
		"nothing of the evictions' config": {create(Config{}), []string{
			"webhook of evictions: Cached", "Clock", "Gate", "Leases", "Live", "Metrics", "Namespace", "OwnUsername", "Preflights", "Recorder",
			"Registrations", "Resolver", "Stalled", "Synced", "Writer",
		}},
		"nothing of the status handler": {serve(d.Authenticator, d.bodies, &StatusHandler{}), []string{
			"webhook of evictionrequests/status: Clock", "OwnUsername", "Registrations", "Skippers",
		}},
		"nothing of the authenticator":    {serve(&Authenticator{}, d.bodies, statusHandler(t0)), []string{"authenticator of the webhooks: Clock", "Metrics", "Token"}},
		"nothing of the body limit":       {serve(d.Authenticator, &BodyLimit{}, statusHandler(t0)), []string{"body limit of the webhooks: Metrics"}},
		"nothing of the deletions":        {RegisterPodDeletes(d, d.Authenticator, d.bodies, &PodDeleteHandler{}), []string{"webhook of deletions: Deletions", "Metrics"}},
		"nothing of the server":           {(&Server{}).Start(t.Context()), []string{"server of the webhooks: Dropped", "Leaving", "TLS"}},
		"all that the tests set is there": {create(w.handler.Config), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			if tc.err != nil {
				for line := range strings.SplitSeq(tc.err.Error(), "\n") {
					got = append(got, strings.TrimSuffix(line, " is not set"))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}
