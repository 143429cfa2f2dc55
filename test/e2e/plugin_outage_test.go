//go:build unix

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// running is a call of the plugin whose clock stands still.
type running struct {
	*pluginCall
	clock *testingclock.FakeClock
	stop  context.CancelFunc
	done  chan struct{}
	code  int
	said  string
}

// startPlugin starts the plugin, and returns when it waits for something.
func startPlugin(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	fake := testingclock.NewFakeClock(time.Now())
	r := &running{pluginCall: &pluginCall{user: "olga", group: operators, clock: fake}, clock: fake, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.code, r.said = r.run(ctx, t, args...)
	}()
	t.Cleanup(func() { stop(); <-r.done })
	eventually(t, "the plugin to wait", func(context.Context) error {
		if !fake.HasWaiters() {
			return errors.New(r.printed())
		}
		return nil
	})
	return r
}

// ended waits for the end of the plugin.
func (r *running) ended(t *testing.T) {
	t.Helper()
	eventually(t, "the plugin to end", func(context.Context) error {
		select {
		case <-r.done:
			return nil
		default:
			return errors.New(r.printed())
		}
	})
}

// A person who drains while nobody can is told so within 5 s, with what to do, and a
// person who cancels is told nothing that is not so.
func TestThePluginSaysThatNobodyWorks(t *testing.T) {
	m, _ := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	silent := nameIn(namespace, "silent")
	pod := createPod(t, builder.Pod(namespace, "db-0").NodeSelector(testLabel, namespace).Interceptors(silent).Obj())
	evict(t, "carol", pod, eviction(pod))
	waitRequest(t, pod, "intercepted", activeIs(silent))
	outage(t, m)
	tellHowItWasInstalled(t)
	const within = 4900 * time.Millisecond

	t.Cleanup(func() { // It was not carried out, so nothing holds it.
		var list v1alpha1.NodeMaintenanceList
		if err := admin.List(context.Background(), &list); err != nil {
			t.Error(err)
		}
		for i := range list.Items {
			if strings.Contains(list.Items[i].Name, node) {
				if err := admin.Delete(context.Background(), &list.Items[i]); err != nil {
					t.Error(err)
				}
			}
		}
	})
	drain := startPlugin(t, "drain", node, "--force")
	drain.clock.Step(within)
	const nobody = "the manager has not observed it yet: no replica of Drawbridge is ready (0 of 0): kubectl -n "
	eventually(t, "the drain to say that nobody works", func(context.Context) error {
		if !strings.Contains(drain.printed(), nobody) {
			return errors.New(drain.printed())
		}
		return nil
	})
	drain.stop()
	drain.ended(t)
	if drain.code != 130 || strings.Contains(drain.printed(), "drained") {
		t.Errorf("exit code %d, want 130:\n%s%s", drain.code, drain.printed(), drain.said)
	}

	for name, tc := range map[string]struct {
		args      []string
		out, said string
		not       string
	}{
		"a drain": {
			args: []string{"cancel", node}, out: "told to stop", not: " stopped",
			said: "The manager has not responded within 5s, so nothing is withdrawn yet: no replica of Drawbridge is ready",
		},
		"one pod": {
			args: []string{"cancel", "pod/" + pod.Name, "-n", namespace}, out: "is withdrawn", not: "is canceled",
			said: "Nobody has confirmed that within 5s, so interceptors may still be working: no replica of Drawbridge is ready",
		},
	} {
		t.Run("a cancellation of "+name, func(t *testing.T) {
			cancel := startPlugin(t, tc.args...)
			cancel.clock.Step(6 * time.Second)
			cancel.ended(t)
			if cancel.code != 0 || !strings.Contains(cancel.printed(), tc.out) || !strings.Contains(cancel.said, tc.said) || strings.Contains(cancel.printed(), tc.not) {
				t.Errorf("exit code %d, want %q and %q, and not %q:\n%s%s", cancel.code, tc.out, tc.said, tc.not, cancel.printed(), cancel.said)
			}
		})
	}
	// What was not claimed was not so.
	er, err := getRequest(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if state := er.Status.Summary.State; state != v1alpha1.StateIntercepting {
		t.Errorf("the request is %s, want it to stand as it was", state)
	}

	t.Run("the NodeMaintenance controller is disabled", func(t *testing.T) {
		d := &appsv1.Deployment{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: inst.Namespace, Name: "drawbridge"}, d); err != nil {
			t.Fatal(err)
		}
		base := d.DeepCopy()
		d.Spec.Template.Spec.Containers[0].Args = []string{"--maintenance=false"}
		if err := admin.Patch(t.Context(), d, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		other := addNodes(t, namespace, 1)[0]
		p := &pluginCall{user: "olga", group: operators}
		code, said := p.run(t.Context(), t, "drain", other)
		const want = "nobody would drain: the NodeMaintenance controller is disabled (maintenance.enabled=false). Use kubectl drain"
		if code != 1 || !strings.Contains(said, want) {
			t.Errorf("exit code %d, want 1 and %q:\n%s%s", code, want, p.printed(), said)
		}
		var list v1alpha1.NodeMaintenanceList
		if err := admin.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if strings.Contains(list.Items[i].Name, other) {
				t.Errorf("it has left NodeMaintenance %s, which nobody carries out", list.Items[i].Name)
			}
		}
	})
}
