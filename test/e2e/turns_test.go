//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The real node-maintenance-operator has one worker, which gives each node 30 seconds in
// turn (RunNodeDrain with a timeout; a try every 5 seconds). With eight nodes each of
// them is asked only every four minutes, which says nothing: its marks stand there all
// the time. What it takes away ends its request, and silence ends a person's.
func TestEightNodesAreDrainedInTurnsByOneWorker(t *testing.T) {
	m := startManager(t, func(o *app.Options) { o.Policy.StartupGrace, o.Policy.HeartbeatDeadline = 0, 24*time.Hour })
	namespace := kube.Namespace(t)
	const (
		worker = "system:serviceaccount:medik8s:node-maintenance-operator-controller-manager"
		slow   = "migration.example.com"
		turn   = 30 * time.Second
		try    = 5 * time.Second
	)
	nodes := addNodes(t, namespace, 9)
	drained, other := nodes[:8], nodes[8]
	pods := make([]*corev1.Pod, 0, len(drained))
	for i, node := range drained {
		pods = append(pods, createPod(t, builder.Pod(namespace, fmt.Sprintf("vm-%d", i)).Node(node).Interceptors(slow).Obj()))
	}
	witness := createPod(t, builder.Pod(namespace, "witness").Node(other).Interceptors(slow).Obj())
	kubectl(t, "admin", "cordon", other)

	before := map[string]*v1alpha1.EvictionRequest{}
	for round := range 3 {
		for i, node := range drained {
			if round == 0 {
				mark(t, node, true)
			}
			if round == 2 && i == 2 {
				// A person asks once and goes away; the cordon stays. The clock passes what it
				// is granted with the last turn, so whoever judges leases has seen all of them.
				if got := evict(t, "carol", witness, eviction(witness)); got.code != http.StatusTooManyRequests {
					t.Fatalf("carol: %d %s", got.code, got.body)
				}
				waitRequest(t, witness, "in progress", activeIs(slow))
			}
			for range turn / try {
				if got := evict(t, worker, pods[i], eviction(pods[i])); got.code != http.StatusTooManyRequests {
					t.Fatalf("round %d, node %d: %d %s", round, i, got.code, got.body)
				}
				m.Clock.Advance(try)
			}
			er := waitRequest(t, pods[i], "in progress", activeIs(slow))
			if was := before[node]; was != nil && was.UID != er.UID {
				t.Errorf("round %d: the request of node %d was made anew", round, i)
			}
			before[node] = er
		}
	}
	waitRequest(t, witness, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	for i, node := range drained {
		er := waitRequest(t, pods[i], "in progress", activeIs(slow))
		if er.UID != before[node].UID || len(er.Spec.Requesters) != 1 {
			t.Errorf("node %d: requesters %v, made anew: %t", i, requesters(er), er.UID != before[node].UID)
		}
	}

	mark(t, drained[0], false)
	eventually(t, "the end of the marks to withdraw the request", func(ctx context.Context) error {
		m.Clock.Advance(10 * time.Second)
		er, err := getRequest(ctx, pods[0])
		if err == nil && !isTrue(v1alpha1.ConditionCanceled)(er) {
			return fmt.Errorf("requesters %v", requesters(er))
		}
		return err
	})
	waitEvent(t, before[drained[0]], "RequesterWithdrawn")
	for i := range drained[1:] {
		waitRequest(t, pods[i+1], "in progress", activeIs(slow))
		lives(t, pods[i+1])
	}
}

// mark puts the marks of node-maintenance-operator on a node, or takes them away.
func mark(t *testing.T, name string, there bool) {
	t.Helper()
	eventually(t, "to mark node "+name, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Spec.Unschedulable = there
		var taints []corev1.Taint
		for _, taint := range node.Spec.Taints {
			if taint.Key != "medik8s.io/drain" && taint.Key != corev1.TaintNodeUnschedulable {
				taints = append(taints, taint)
			}
		}
		if there {
			taints = append(taints, corev1.Taint{Key: "medik8s.io/drain", Effect: corev1.TaintEffectNoSchedule})
		}
		node.Spec.Taints = taints
		return admin.Update(ctx, node)
	})
}
