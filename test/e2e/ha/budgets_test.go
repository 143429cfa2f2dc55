//go:build unix

package ha

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/disruption"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

var kills = flag.Int("kills", 3, "how often the leader is killed while zones are drained")

// shortLease lets the other replica lead soon. On a slow machine a leader may not renew it in time: it
// ends then, which is one more death.
var shortLease = []string{"--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=500ms"}

// Three zones on three nodes are drained at the same time by three real kubectl drains, and
// the leader dies in the middle; then back again, and the next leader dies. At no moment are
// pods of two zones missing, and all drains end. More deaths are asked for by a flag: go test
// ./test/e2e/ha -run Zones -args -kills=10.
func TestZonesAreKeptWhileLeadersDie(t *testing.T) {
	inst := installed(t, nil)
	s := inst.NewService(t)
	replicas := []*manager.Process{s.Replica(t, shortLease...), s.Replica(t, shortLease...)}
	namespace := kube.Namespace(t)
	const only = "zones-of"
	label := func(node *corev1.Node) { node.Labels[only] = namespace }
	from := must(kube.AddNodes(t.Context(), 3, label))(t)
	expected := map[string]int{"a": 4, "b": 4, "c": 4}
	for zone := range expected {
		set := builder.StatefulSet(namespace, "ingester-"+zone).Replicas(4).Pods(func(w *builder.PodWrapper) {
			w.NodeSelector(only, namespace).Label("zone", zone).Label("ring", "ingester")
		}).Obj()
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		eventually(t, "the StatefulSet of zone "+zone, func(ctx context.Context) error { return client.IgnoreAlreadyExists(admin.Create(ctx, set)) })
	}
	readyOn(t, namespace, 12, from...)
	to := must(kube.AddNodes(t.Context(), 3, label))(t)
	budget := builder.EvictionBudget(namespace, "zones", "ring", "ingester").ByPodLabel("zone", 1).MaxUnavailable("100%").Obj()
	eventually(t, "the budget", func(ctx context.Context) error { return client.IgnoreAlreadyExists(admin.Create(ctx, budget)) })
	eventually(t, "the budget to cover the pods", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.MatchingPods == nil || *budget.Status.MatchingPods != 12 {
			return fmt.Errorf("its status is %+v", budget.Status)
		}
		return nil
	})
	watcher := must(disruption.Start(t.Context(), kube.Client(), disruption.Groups{Namespace: namespace, Label: "zone", Expected: expected}))(t)

	for killed := range *kills {
		before := watcher.Seen().Times
		var drains sync.WaitGroup
		for _, node := range from {
			drains.Go(func() { drain(t, node) })
		}
		eventually(t, "the first zone to be drained", func(context.Context) error {
			revive(t, s, replicas, shortLease...)
			if n := watcher.Seen().Times - before; n <= killed%len(expected) {
				return fmt.Errorf("%d zones were disrupted", n)
			}
			return nil
		})
		leads, _ := leader(t, replicas...)
		if err := leads.Kill(); err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			drains.Wait()
		}()
		eventually(t, "the drains to end", func(context.Context) error {
			revive(t, s, replicas, shortLease...)
			select {
			case <-drained:
				return nil
			default:
				return fmt.Errorf("%d zones were disrupted", watcher.Seen().Times-before)
			}
		})
		readyOn(t, namespace, 12, to...)
		for _, node := range from {
			if err := must(kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "uncordon", node))(t).Err(); err != nil {
				t.Fatal(err)
			}
		}
		from, to = to, from
	}
	seen, err := watcher.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if seen.Most > 1 {
		t.Errorf("%d zones were disrupted at the same time: %s", seen.Most, seen.Worst)
	}
	if want := *kills * len(expected); seen.Times < want {
		t.Errorf("zones were disrupted %d times, want at least %d: the watch has seen nothing", seen.Times, want)
	}
}

// drain drains a node with the real kubectl, which gives up if a replica dies that it has just
// asked: as an administrator would, it is called again.
func drain(t *testing.T, node string) {
	t.Helper()
	eventually(t, "the drain of "+node, func(ctx context.Context) error {
		result, err := kube.Kubectl(ctx, cluster.KubectlOptions{}, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data")
		if err == nil {
			err = result.Err()
		}
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("drain %s: %v", node, err)
		}
		return err
	})
}

// readyOn waits until so many pods are Ready, on these nodes only.
func readyOn(t *testing.T, namespace string, n int, nodes ...string) {
	t.Helper()
	of := map[string]bool{}
	for _, node := range nodes {
		of[node] = true
	}
	eventually(t, fmt.Sprintf("%d pods to be Ready on %v", n, nodes), func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			pod := &list.Items[i]
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil && of[pod.Spec.NodeName] {
					ready++
				}
			}
		}
		if ready != n {
			return fmt.Errorf("%d of %d", ready, len(list.Items))
		}
		return nil
	})
}
