package webhook

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is missing must not turn into "anybody may": the manager does not start.
func TestTheWebhooksAreNotServedWhileSomethingIsMissing(t *testing.T) {
	w := newWorld(t)
	d := newDoorway(w)
	create := func(c Config) error {
		_, _, err := NewEvictionHandler(c)
		return err
	}
	serve := func(door *Door, status *StatusHandler) error {
		return Register(d, door, w.handler, status, &ProbeHandler{})
	}
	cases := map[string]struct {
		err  error
		want []string
	}{
		"nothing of the evictions' config": {create(Config{}), []string{
			"webhook of evictions: Cached", "Clock", "Gate", "Leases", "Live", "Metrics", "Namespace", "OwnUsername", "Preflights", "Recorder",
			"Registrations", "Resolver", "Stalled", "Synced", "Writer",
		}},
		"nothing of the status handler": {serve(d.Door, &StatusHandler{}), []string{
			"webhook of evictionrequests/status: Clock", "OwnUsername", "Registrations", "Skippers",
		}},
		"nothing of the door":             {serve(&Door{}, statusHandler(t0)), []string{"door of the webhooks: Clock", "Metrics", "Token"}},
		"nothing of the deletions":        {RegisterPodDeletes(d, d.Door, &PodDeleteHandler{}), []string{"webhook of deletions: Deletions", "Metrics"}},
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
