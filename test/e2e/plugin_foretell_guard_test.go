//go:build unix

package e2e

import (
	"strings"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// With the guards that the chart switches on, what `why` foretells is true before the
// outage of the manager, when the webhook answers, and in it, when the guard does.
func TestWhatThePluginForetellsOfAClosedGuardHappens(t *testing.T) {
	manager, _ := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	silent := nameIn(namespace, "silent")
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(silent).Obj())
	t.Cleanup(func() { clearPod(t, pod) })
	evict(t, "carol", pod, eviction(pod))
	waitRequest(t, pod, "intercepted", activeIs(silent))
	waitGuard(t, pod, true)
	wantForetold(t, pod)
	outage(t, manager)
	told := wantForetold(t, pod)
	if told.Answer.Evicts {
		t.Errorf("it is foretold to be evicted: %s", told.Headline)
	}
	lives(t, pod)
}

// A guard that may not be closed protects nobody: `why` says so before the outage, and what
// it foretells in it is true.
func TestWhatThePluginForetellsOfAGuardThatIsRefusedHappens(t *testing.T) {
	manager, _ := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	silent := nameIn(namespace, "silent")
	without(t, namespace, "count/poddisruptionbudgets.policy")
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(silent).Obj())
	t.Cleanup(func() { clearPod(t, pod) })
	evict(t, "carol", pod, eviction(pod))
	waitRequest(t, pod, "intercepted", activeIs(silent))
	waitEvent(t, pod, "RefusedByQuota")
	told := wantForetold(t, pod)
	saysAll(t, "notes", strings.Join(told.Notes, "\n"), "Drawbridge cannot write the guard's PodDisruptionBudget: a quota of the namespace refuses it", "exceeded quota: none")
	outage(t, manager)
	if told := wantForetold(t, pod); !told.Answer.Evicts {
		t.Errorf("it is foretold to be kept: %s", told.Headline)
	}
}
