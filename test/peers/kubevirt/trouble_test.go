//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// retryLimit is that of these tests: KubeVirt pauses for 20 s after the first failure.
const retryLimit = 2

// failsForGood: after retryLimit failures it is given up, nothing is marked or under
// way any more, the machine lives. To try again, the failed migrations are deleted. Where
// KubeVirt keeps its mark, it continues by itself.
func failsForGood(t *testing.T, kept bool) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	var repaired atomic.Bool
	guests.play(namespace, func(string) guest { return guest{fails: !repaired.Load()} })
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	evictUntil(t, pod, interceptor)
	waitEvent(t, namespace, "EvacuationGivenUp")
	if kept {
		waitEvent(t, namespace, "MarkKept")
	} else {
		unmarked(t, namespace, "vm")
		noneUnfinished(t, namespace)
		if failed := must(migrations(t.Context(), namespace))(t); len(failed) != retryLimit {
			t.Errorf("want %d migrations, got %v", retryLimit, phases(failed))
		}
	}
	lives(t, pod)
	if got := evict(t, pod, evictionOf(pod)); got.code != http.StatusTooManyRequests {
		t.Errorf("want 429, got %d: %s", got.code, got.body)
	}
	repaired.Store(true)
	all := &unstructured.Unstructured{}
	all.SetGroupVersionKind(vmcrds.Migration)
	if err := admin.DeleteAllOf(t.Context(), all, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	finishWell(t, startDrain(t, "alice", nodes[0]), 2*patience)
	runsOn(t, namespace, "vm", nodes[1])
	gone(t, pod)
}

// waitEvent waits for an event in a namespace.
func waitEvent(t *testing.T, namespace, reason string) {
	t.Helper()
	eventually(t, "event "+reason, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var seen []string
		for _, event := range list.Items {
			if event.Reason == reason {
				return nil
			}
			seen = append(seen, event.Reason)
		}
		return fmt.Errorf("there are %v", seen)
	})
}

// cross: a machine is on its way to a node that is drained, too. It ends on a third one,
// and both drains end.
func cross(t *testing.T, _ bool) {
	t.Helper()
	w := beginDrain(t)
	target := launcher(t, w.namespace, "vm", w.nodes[1])
	second := startDrain(t, "bob", w.nodes[1])
	evictUntil(t, target, "Eviction triggered evacuation")
	lives(t, target)
	lives(t, w.pod)
	third := addNodes(t, w.namespace, 1)[0]
	w.free.Store(true)
	finishWell(t, w.drain, 2*patience)
	finishWell(t, second, 2*patience)
	runsOn(t, w.namespace, "vm", third)
	unmarked(t, w.namespace, "vm")
	waitPhases(t, w.namespace, "Succeeded", "Succeeded")
	gone(t, w.pod)
	gone(t, target)
}

// pendingTarget: the pod that a migration waits for is refused, and is not evicted under
// its hands. When there is room, the drain ends.
func pendingTarget(t *testing.T, _ bool) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	cordon(t, nodes[1])
	source := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	waitPhases(t, namespace, "Scheduling")
	var target *corev1.Pod
	for _, pod := range must(pods(t.Context(), namespace))(t) {
		if pod.UID != source.UID && pod.Status.Phase == corev1.PodPending {
			target = &pod
		}
	}
	if target == nil {
		t.Fatal("the migration has no Pending target")
	}
	for range 5 {
		if got := evict(t, target, evictionOf(target)); got.code != http.StatusTooManyRequests {
			t.Errorf("want 429, got %d: %s", got.code, got.body)
		}
	}
	uncordon(t, nodes[1])
	finishWell(t, drain, 2*patience)
	runsOn(t, namespace, "vm", nodes[1])
	waitPhases(t, namespace, "Succeeded")
	if now := launcher(t, namespace, "vm", nodes[1]); now.UID != target.UID {
		t.Error("the machine runs in another pod than the target that was evicted")
	}
}

// manyMachines: twenty machines of two nodes move with as many migrations, five at a
// time, two from one node.
func manyMachines(t *testing.T) {
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 3)
	guests.play(namespace, func(string) guest { return guest{} })
	const each = 10
	for n, node := range nodes[:2] {
		var names []string
		for i := range each {
			names = append(names, fmt.Sprintf("vm-%d-%02d", n, i))
		}
		createMachines(t, namespace, node, "LiveMigrate", names...)
	}
	for _, node := range nodes[:2] { // Or the machines of one would go to the other.
		cordon(t, node)
	}
	mark := kube.RequestLog().Mark()
	began := time.Now()
	first, second := startDrain(t, "alice", nodes[0]), startDrain(t, "bob", nodes[1])
	finishWell(t, first, 5*patience)
	finishWell(t, second, 5*patience)
	inCluster, ofNode := guests.peaks(namespace)
	items := must(migrations(t.Context(), namespace))(t)
	t.Logf("%d machines in %s, at most %d migrations at a time and %d of a node", 2*each, time.Since(began).Round(time.Second), inCluster, ofNode)
	if inCluster > 5 || ofNode > 2 {
		t.Errorf("want at most 5 migrations at a time and 2 of a node, got %d and %d", inCluster, ofNode)
	}
	if len(items) != 2*each {
		t.Errorf("want a migration for each machine, got %v", phases(items))
	}
	countWrites(t, mark, namespace, 2*each)
}
