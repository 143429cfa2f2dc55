//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// daemonsWave is the wave of all DaemonSets.
func daemonsWave(name string) v1alpha1.MaintenanceWave {
	return v1alpha1.MaintenanceWave{Name: name, DaemonSets: true}
}

// waitTaint waits until a node has our taint, or has it no more.
func waitTaint(t *testing.T, name string, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("node %s to have our taint: %t", name, want), func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if slices.ContainsFunc(node.Spec.Taints, ourTaint) != want {
			return fmt.Errorf("taints %v", node.Spec.Taints)
		}
		return nil
	})
}

func ourTaint(taint corev1.Taint) bool { return taint.Key == v1alpha1.MaintenanceTaint }

// waitDaemons waits until so many pods of the DaemonSet of createDaemons are on nodes, all Ready. One
// that was made just before the taint is on none: it waits for the end.
func waitDaemons(t *testing.T, namespace string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the DaemonSet to have %d pods on nodes", want), func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{builder.AppLabel: "agent"}); err != nil {
			return err
		}
		found := 0
		for i := range list.Items {
			pod := &list.Items[i]
			switch {
			case pod.Spec.NodeName == "":
			case !isReady(pod):
				return fmt.Errorf("pod %s is not Ready", pod.Name)
			default:
				found++
			}
		}
		if found != want {
			return fmt.Errorf("it has %d", found)
		}
		return nil
	})
}

// Their pods leave after all others and are not made again until the maintenance ends. Those that
// tolerate the taint, and those that the node needs, stay.
func TestPodsOfDaemonSetsLeaveLast(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	agent := &createDaemons(t, namespace, node)[0]
	tolerant := &createDaemonSet(t, namespace, "tolerant", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}, node)[0]
	proxy := &createDaemonSet(t, namespace, "proxy", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }, node)[0]
	web := createPod(t, ofTier(namespace, "web", "web", node).Obj())
	m := maintain(t, ofNamespace(namespace, "-m").Drain().AnyWave(daemonsWave("daemons")))

	waitRequest(t, web, "wanted", wantedBy(m.RequesterName()))
	waitMaintenance(t, m, "before its wave", waveIs("", 1))
	lives(t, agent)
	waitTaint(t, node, false)
	if told := storyOf(t, agent, 0); told.Verdict != why.VerdictWaitsForWave || !strings.Contains(told.Headline, "wave daemons (1 of 1)") {
		t.Errorf("why: %s: %s", told.Verdict, told.Headline)
	}
	complete(t, web, "db.example.com", time.Now)
	gone(t, web)
	gone(t, agent)
	waitTaint(t, node, true)
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
	waitNodeEvent(t, waitNode(t, node, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=DrainComplete"}), "NodeTainted")
	waitDaemons(t, namespace, 0)
	noRequest(t, agent)
	lives(t, tolerant)
	lives(t, proxy)
	if told := storyOf(t, tolerant, 0); told.Verdict != why.VerdictDaemonSet {
		t.Errorf("why: %s: %s", told.Verdict, told.Headline)
	}

	// Whoever removes the taint gets nothing but a pod that goes again.
	patchNode(t, node, func(n *corev1.Node) { n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, ourTaint) })
	waitTaint(t, node, true)
	waitDaemons(t, namespace, 0)
	waitMaintenance(t, m, "drained again", inStage(v1alpha1.StageDrainComplete))

	endMaintenance(t, m)
	waitTaint(t, node, false)
	waitNode(t, node, cordonIs{})
	waitDaemons(t, namespace, 1)
	lives(t, tolerant)
	lives(t, proxy)
}

// A PodDisruptionBudget holds them like all others, and the maintenance says so.
func TestABudgetHoldsThePodOfADaemonSet(t *testing.T) {
	manager := startManager(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	agent := &createDaemons(t, namespace, node)[0]
	budget := builder.Budget(namespace, "agent").Selects(builder.AppLabel, "agent").MinAvailable("1").Obj()
	create(t, budget)
	m := maintain(t, ofNamespace(namespace, "-m").Drain().AnyWave(daemonsWave("daemons")))
	waitMaintenance(t, m, "blocked by the budget", func(m *v1alpha1.NodeMaintenance) bool {
		if len(m.Status.Nodes) != 1 || len(m.Status.Nodes[0].BlockingPods) != 1 {
			manager.Clock.Advance(10 * time.Second) // To the next call, and to the next write of numbers.
			return false
		}
		blocking := m.Status.Nodes[0].BlockingPods[0]
		return blocking.Name == agent.Name && blocking.Reason == v1alpha1.BlockEvictionRefused && strings.Contains(blocking.Message, "PodDisruptionBudget")
	})
	lives(t, agent)
	if err := admin.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	waitMaintenance(t, m, "drained", func(m *v1alpha1.NodeMaintenance) bool {
		manager.Clock.Advance(10 * time.Second)
		return inStage(v1alpha1.StageDrainComplete)(m)
	})
	gone(t, agent)
}

// The pods that a second maintenance wanted to leave as well do not come back when the first one ends.
func TestPodsOfDaemonSetsStayAwayForTheNextMaintenance(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	agent := &createDaemons(t, namespace, node)[0]
	first := maintain(t, ofNamespace(namespace, "-m").Drain().AnyWave(daemonsWave("daemons")))
	gone(t, agent)
	waitMaintenance(t, first, "drained", inStage(v1alpha1.StageDrainComplete))
	second := maintain(t, ofNamespace(namespace, "-next").Drain().AnyWave(daemonsWave("agents")))
	waitMaintenance(t, second, "drained behind the taint", func(m *v1alpha1.NodeMaintenance) bool {
		return inStage(v1alpha1.StageDrainComplete)(m) && waveIs("agents", 0)(m)
	})
	endMaintenance(t, first)
	now := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: node}, now); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(now.Spec.Taints, ourTaint) {
		t.Errorf("taints %v, and the second maintenance goes on", now.Spec.Taints)
	}
	waitDaemons(t, namespace, 0)
	endMaintenance(t, second)
	waitTaint(t, node, false)
	waitDaemons(t, namespace, 1)
}

// What cannot be the last wave is refused.
func TestWavesOfDaemonSetsThatCannotWork(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	for name, tc := range map[string]struct {
		maintenance *builder.NodeMaintenanceWrapper
		want        string
	}{
		"not the last": {ofNamespace(namespace, "-a").AnyWave(daemonsWave("daemons")).Wave("storage", tier, "storage"), "daemonSets may be true only for the last wave"},
		"two":          {ofNamespace(namespace, "-b").AnyWave(daemonsWave("a")).AnyWave(daemonsWave("b")), "daemonSets may be true only for the last wave"},
		"none":         {ofNamespace(namespace, "-c").AnyWave(v1alpha1.MaintenanceWave{Name: "daemons"}), "a wave must select pods"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), tc.maintenance.Obj(), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error with %q, got %v", tc.want, err)
			}
		})
	}
	if err := admin.Create(t.Context(), ofNamespace(namespace, "-d").Wave("storage", tier, "storage").AnyWave(daemonsWave("daemons")).Obj(), client.DryRunAll); err != nil {
		t.Errorf("the last one: %v", err)
	}
}
