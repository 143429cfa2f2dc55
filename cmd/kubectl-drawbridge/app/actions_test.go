package app

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/act"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// foretold is what a person reads before an action.
type foretold struct {
	Title, Command, Refused string
	Lines                   []string
}

// What actions do is shown in a browser, against a real cluster, by the tests of the dashboard.
func TestActionsSayWhatTheyWillDo(t *testing.T) {
	const copying = "copy.example.com"
	pod := builder.Pod("shop", "db-0").UID("db-0").Node("node-1")
	request := builder.EvictionRequest("shop", "db-0", "db-0").Requesters("alice.users.drawbridge.dev").Interceptors(copying)
	alone := builder.NodeMaintenance("alone").Nodes("node-1").Drain()
	both := builder.NodeMaintenance("both").Nodes("node-1", "node-2").Drain()
	cases := map[string]struct {
		verb    string
		values  url.Values
		objects []client.Object
		want    foretold
		err     string
	}{
		"cancel a drain": {
			"cancel", url.Values{"node": {"node-1"}}, []client.Object{builder.Node("node-1").Obj(), alone.Obj()},
			foretold{
				Title: "Cancel the drain of node-1", Command: "kubectl drawbridge cancel node-1",
				Lines: []string{
					"NodeMaintenance alone stops draining. Its requests that are not finished are withdrawn, and interceptors undo what they can.",
					"The node stays cordoned until it is uncordoned.",
				},
			}, "",
		},
		"cancel the drain of several nodes": {
			"cancel", url.Values{"node": {"node-1"}}, []client.Object{builder.Node("node-1").Obj(), both.Obj()},
			foretold{
				Title: "Cancel the drain of node-1", Command: "kubectl drawbridge cancel node-1",
				Refused: "nodemaintenance both drains other nodes, too: stop it for all of them with --whole, or take this one out with kubectl drawbridge uncordon node-1",
			}, "",
		},
		"cancel the drain of a node that is gone": {"cancel", url.Values{"node": {"node-9"}}, nil, foretold{}, `there is no node "node-9"`},
		"cancel nothing": {"cancel", nil, nil, foretold{}, `the address has no "node"`},
		"cancel an eviction": {
			"cancel", url.Values{"namespace": {"shop"}, "pod": {"db-0"}}, []client.Object{pod.Obj(), request.Obj()},
			foretold{
				Title: "Cancel the eviction of db-0", Command: "kubectl drawbridge cancel pod/db-0 -n shop",
				Lines: []string{"The request of alice.users.drawbridge.dev is withdrawn.", "A drain that is still running requests it again."},
			}, "",
		},
		"cancel an eviction that nobody wants": {
			"cancel", url.Values{"namespace": {"shop"}, "pod": {"db-0"}}, []client.Object{pod.Obj()},
			foretold{Title: "Cancel the eviction of db-0", Command: "kubectl drawbridge cancel pod/db-0 -n shop", Refused: "nobody has requested the eviction of pod db-0"}, "",
		},
		"uncordon a node": {
			"uncordon", url.Values{"node": {"node-1"}}, []client.Object{builder.Node("node-1").Cordoned().Obj(), alone.Obj(), both.Obj()},
			foretold{
				Title: "Uncordon node-1", Command: "kubectl drawbridge uncordon node-1",
				Lines: []string{
					"NodeMaintenance alone is deleted, and its requests are withdrawn.",
					"NodeMaintenance both continues without this node.",
					"Then the node is schedulable again. Requests of callers of pods/eviction on it are withdrawn, too.",
				},
			}, "",
		},
		"uncordon a node in peace": {
			"uncordon", url.Values{"node": {"node-1"}}, []client.Object{builder.Node("node-1").Obj()},
			foretold{Title: "Uncordon node-1", Command: "kubectl drawbridge uncordon node-1", Lines: []string{"The node is schedulable already, and under no maintenance."}}, "",
		},
		"skip the one whose turn it is": {
			"skip", url.Values{"namespace": {"shop"}, "pod": {"db-0"}, "interceptor": {copying}}, []client.Object{pod.Obj(), request.Clone().Active(copying, now).Obj()},
			foretold{
				Title: "Skip copy.example.com", Command: "kubectl drawbridge skip db-0 copy.example.com -n shop --reason=WHY",
				Lines: []string{
					"The turn of copy.example.com for pod db-0 ends, and the next one begins.",
					"It may still be working, or what it protects may not be safe: check the page of the pod first. The report, an event and the audit log say who skipped it and why.",
				},
			}, "",
		},
		"skip with words for a shell": {
			"skip", url.Values{"namespace": {"shop"}, "pod": {"db-0"}, "interceptor": {"$(reboot)"}}, []client.Object{pod.Obj(), request.Clone().Active(copying, now).Obj()},
			foretold{
				Title: "Skip $(reboot)", Command: "kubectl drawbridge skip db-0 '$(reboot)' -n shop --reason=WHY",
				Refused: "$(reboot) does not intercept this pod; those who do are copy.example.com, imperative-eviction.k8s.io",
			}, "",
		},
		"skip nobody":           {"skip", url.Values{"namespace": {"shop"}, "pod": {"db-0"}}, nil, foretold{}, `the address has no "interceptor"`},
		"drain without a node":  {"drain", url.Values{"node": {" "}}, nil, foretold{}, `the address has no "node"`},
		"uncordon without one":  {"uncordon", nil, nil, foretold{}, `the address has no "node"`},
		"uncordon what is gone": {"uncordon", url.Values{"node": {"node-9"}}, nil, foretold{}, `there is no node "node-9"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, out, errOut := testOptions()
			objects := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(tc.objects...).Build()
			call := one{commands: o, Connection: &cli.Connection{Client: objects, Namespace: "shop"}, values: tc.values, out: out, errOut: errOut}
			p, err := verbs[tc.verb].plan(call, t.Context())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("want an error with %q, got %v", tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, foretold{p.Title, p.Command, p.Refused, p.Lines}); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSkippingNeedsAReason(t *testing.T) {
	o, out, errOut := testOptions()
	call := one{commands: o, Connection: &cli.Connection{Namespace: "shop"}, values: url.Values{"pod": {"db-0"}, "interceptor": {"copy.example.com"}, "reason": {"  "}}, out: out, errOut: errOut}
	if _, err := call.doSkip(t.Context()); err == nil || !strings.Contains(err.Error(), "a reason is required") {
		t.Errorf("got %v", err)
	}
}

func TestThereIsNoOtherAction(t *testing.T) {
	o, _, _ := testOptions()
	a := newActions(o.Options)
	if _, err := a.Plan(t.Context(), "delete", nil); !errors.Is(err, act.ErrUnknown) {
		t.Errorf("plan: %v", err)
	}
	if _, err := a.Do(t.Context(), "delete", nil); !errors.Is(err, act.ErrUnknown) {
		t.Errorf("do: %v", err)
	}
}

func TestLinesOfWhatWasPrinted(t *testing.T) {
	got := lines(bytes.NewBufferString("node/a cordoned\n\n  Warning: two\nlast"))
	if diff := cmp.Diff([]string{"node/a cordoned", "two", "last"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
