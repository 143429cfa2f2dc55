//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// kubectl drain goes on asking by name, and a StatefulSet gives the names of its
// pods to their replacements. The drain must end well and leave those alone.
func TestADrainSparesTheReplacementsOfAStatefulSet(t *testing.T) {
	shareManager(t)
	tests := map[string]struct {
		replicas int
		// otherNode is there for the replacements.
		otherNode bool
	}{
		"that run on another node":          {replicas: 2, otherNode: true},
		"that have not found a node so far": {replicas: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kube.Namespace(t)
			node := addNodes(t, namespace, 1)[0]
			const interceptor = "failover.example.com"
			startInterceptor(t, namespace, interceptor, time.Second)
			create(t, builder.StatefulSet(namespace, "db").Replicas(int32(tt.replicas)).Pods(onNodesOf(namespace, intercepted(interceptor))).Obj())
			pods := readyPods(t, namespace, tt.replicas, node)
			if tt.otherNode {
				addNodes(t, namespace, 1)
			}

			mark := kube.RequestLog().Mark()
			drain := startDrain(t, "frank", node)
			for _, pod := range pods {
				waitLine(t, drain, fmt.Sprintf("error when evicting pods/%q", pod.Name))
			}
			// Held up after its first calls until others have the names, so that the next
			// call does not meet the pods themselves.
			if err := drain.Pause(); err != nil {
				t.Fatal(err)
			}
			var replacements []*corev1.Pod
			for _, pod := range pods {
				replacements = append(replacements, replacementOf(t, &pod, tt.otherNode))
			}
			if err := drain.Resume(); err != nil {
				t.Fatal(err)
			}
			saysAll(t, "standard output", finishWell(t, drain).Stdout, "node/"+node+" drained")

			log := since(t, mark)
			for i, pod := range pods {
				ofPod := func(r cluster.Request) bool { return r.Name == pod.Name }
				// On a busy machine it may have called twice before it was held up.
				if diff := cmp.Diff([]int{http.StatusTooManyRequests, http.StatusNotFound}, slices.Compact(codes(evictionsBy(log, "frank", namespace).Where(ofPod)))); diff != "" {
					t.Errorf("answers to kubectl about %s (-want +got):\n%s", pod.Name, diff)
				}
				evictedOnce(t, "the evictor about "+pod.Name, codes(evictionsBy(log, drawbridge(), namespace).Where(ofPod)))
				waitRequest(t, &pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
				if deleted := log.Where(ofPod).Where(deletedByPeople); len(deleted) > 0 {
					t.Errorf("somebody has deleted %s or its replacement: %v", pod.Name, deleted)
				}
				unharmed(t, replacements[i])
				noRequest(t, replacements[i])
				saysAll(t, "the event", waitEvent(t, replacements[i], "ReplacementSpared").Note, "kubectl (frank)", "left node "+node)
			}
			if !tt.otherNode {
				return
			}
			// Whoever has not asked for the pod before means the one that is there now.
			if got := evict(t, "grace", replacements[0], eviction(replacements[0])); got.code != http.StatusTooManyRequests {
				t.Errorf("somebody else's call: want 429, got %d %s", got.code, got.body)
			}
			er := waitRequest(t, replacements[0], "there", func(*v1alpha1.EvictionRequest) bool { return true })
			if diff := cmp.Diff([]string{"grace.users.drawbridge.dev"}, requesters(er)); diff != "" {
				t.Errorf("requesters (-want +got):\n%s", diff)
			}
		})
	}
}

// deletedByPeople: the request deletes a pod, and is not that of the simulated kubelet or
// of a controller of Kubernetes.
func deletedByPeople(r cluster.Request) bool {
	return r.Resource == "pods" && r.Subresource == "" && r.Verb == "delete" && r.User != "kwok" && !strings.HasPrefix(r.User, "system:serviceaccount:kube-system:")
}

// replacementOf waits for another pod of the same name, Ready or waiting for a node.
func replacementOf(t *testing.T, pod *corev1.Pod, ready bool) *corev1.Pod {
	t.Helper()
	now := &corev1.Pod{}
	eventually(t, "pod "+pod.Name+" to be replaced", func(ctx context.Context) error {
		*now = corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.UID == pod.UID || isReady(now) != ready {
			return fmt.Errorf("UID %s, node %q, phase %s", now.UID, now.Spec.NodeName, now.Status.Phase)
		}
		return nil
	})
	return now
}

// unharmed fails the test unless nobody has asked for the end of the very pod.
func unharmed(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
		t.Errorf("pod %s: %v", pod.Name, err)
		return
	}
	if now.UID != pod.UID || now.DeletionTimestamp != nil {
		t.Errorf("pod %s: want UID %s, got %s, deleted %v", pod.Name, pod.UID, now.UID, now.DeletionTimestamp)
	}
}

// evictedOnce wants that the last of the answers evicts, and no other one. Those before it met a
// guard that was closing when the interceptor was done already, as on a busy machine.
func evictedOnce(t *testing.T, who string, answers []int) {
	t.Helper()
	last := len(answers) - 1
	if last < 0 || answers[last] != http.StatusCreated ||
		slices.ContainsFunc(answers[:last], func(code int) bool { return code != http.StatusTooManyRequests }) {
		t.Errorf("answers to %s: want one eviction, got %v", who, answers)
	}
}

// codes are the codes of the answers.
func codes(requests cluster.Requests) []int {
	var all []int
	for _, r := range requests {
		all = append(all, r.Code)
	}
	return all
}
