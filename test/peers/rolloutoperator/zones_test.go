//go:build unix

package rolloutoperator

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// group is the value of a label that all zones of an application have.
	group, groupLabel = "ingester", "rollout-group"
	// needs is how long the interceptor of the pods works, whose name is preparer.
	needs    = 3 * time.Second
	preparer = "zones.example.com"
)

var shared manager.Shared

// zones are two pods in two zones of an application, on two nodes, behind a
// ZoneAwarePodDisruptionBudget, and two more nodes to go to.
type zones struct {
	situations.Place
	pods   [2]*corev1.Pod
	worker *peer.Worker
	mark   cluster.Mark
}

func newZones(t *testing.T, maxUnavailable int64) *zones {
	t.Helper()
	if world == nil {
		peer.Skip(t, peerName)
	}
	shared.ForTest(t, installed(t), manager.Options{})
	z := &zones{Place: place(t), worker: peer.NewWorker(needs)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	if err := z.worker.Start(ctx, world.Kube, preparer); err != nil {
		t.Fatal(err)
	}
	zpdb := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"maxUnavailable": maxUnavailable, "selector": map[string]any{"matchLabels": map[string]any{groupLabel: group}},
	}}}
	zpdb.SetGroupVersionKind(budget)
	zpdb.SetNamespace(z.Namespace)
	zpdb.SetName(group)
	cluster.Create(t, world.Client, zpdb)
	for i, zone := range []string{"zone-a", "zone-b"} {
		set := builder.StatefulSet(z.Namespace, zone).Label(groupLabel, group).Pods(func(w *builder.PodWrapper) {
			w.Label(groupLabel, group).Label("name", zone).Interceptors(preparer).Change(apart)
			for key, value := range z.Selector {
				w.NodeSelector(key, value)
			}
		}).Obj()
		set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType // The operator rolls it.
		cluster.Create(t, world.Client, set)
		z.pods[i] = z.ready(t, zone+"-0")
	}
	_, err := world.Kube.AddNodes(t.Context(), 2, func(n *corev1.Node) {
		for key, value := range z.Selector {
			n.Labels[key] = value
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	z.mark = world.Kube.RequestLog().Mark()
	return z
}

// apart keeps the pods of the zones on different nodes.
func apart(pod *corev1.Pod) {
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{groupLabel: group}}, TopologyKey: corev1.LabelHostname,
		}},
	}}
}

// ready waits until a pod is Ready.
func (z *zones) ready(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	cluster.Eventually(t, "pod "+name+" to be Ready", func(ctx context.Context) error {
		if err := world.Client.Get(ctx, types.NamespacedName{Namespace: z.Namespace, Name: name}, pod); err != nil {
			return err
		}
		if !cluster.IsReady(pod) {
			return fmt.Errorf("it is %s on node %q", pod.Status.Phase, pod.Spec.NodeName)
		}
		return nil
	})
	return pod
}

// drain starts to drain the node of a pod, until the test ends.
func (z *zones) drain(t *testing.T, pod *corev1.Pod) *cluster.Program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	return cluster.Must(world.Kube.StartKubectl(ctx, asAlice, "drain", pod.Spec.NodeName, "--ignore-daemonsets"))(t)
}

// calls are the evictions of the very pod that had this answer.
func (z *zones) calls(t *testing.T, pod *corev1.Pod, code int) cluster.Requests {
	t.Helper()
	return cluster.Must(peer.Calls(t.Context(), world.Kube.RequestLog(), z.mark, pod))(t).Where(func(r cluster.Request) bool {
		return r.Subresource == "eviction" && r.Code == code && peer.IsFor(r, pod.UID)
	})
}

// Both nodes are drained at the same time. Each pod is prepared, and the second goes when the first is back.
func TestTwoZonesAtTheSameTime(t *testing.T) {
	z := newZones(t, 1)
	var drains [2]*cluster.Program
	for i, pod := range z.pods {
		drains[i] = z.drain(t, pod)
	}
	for i, program := range drains {
		cluster.Eventually(t, "the drain of "+z.pods[i].Spec.NodeName+" to end", func(context.Context) error {
			select {
			case <-program.Done():
				return nil
			default:
				return fmt.Errorf("it has said %v", program.Lines())
			}
		})
		if result, err := program.Wait(); err != nil || result.ExitCode != 0 {
			t.Fatalf("it ended with %d: %v\n%s", result.ExitCode, err, result.Stderr)
		}
	}
	var evicted [2]time.Time
	for i, pod := range z.pods {
		calls := z.calls(t, pod, http.StatusCreated)
		if len(calls) == 0 {
			t.Fatalf("pod %s was not evicted", pod.Name)
		}
		evicted[i] = calls[0].Time
		if done := z.worker.DoneWith(pod.UID); done.IsZero() || evicted[i].Before(done) {
			t.Errorf("pod %s was evicted at %s, its interceptor was done at %s", pod.Name, evicted[i], done)
		}
	}
	first, second := 0, 1
	if evicted[1].Before(evicted[0]) {
		first, second = 1, 0
	}
	successor := z.ready(t, z.pods[first].Name)
	for _, c := range successor.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(evicted[second]) {
			t.Errorf("pod %s went at %s, but its sibling was back at %s only", z.pods[second].Name, evicted[second], c.LastTransitionTime)
		}
	}
	t.Logf("the second went %s after the first; refused %d and %d times", evicted[second].Sub(evicted[first]),
		len(z.calls(t, z.pods[first], http.StatusTooManyRequests)), len(z.calls(t, z.pods[second], http.StatusTooManyRequests)))
}
