//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// clusterMigrations are for one test at a time of those that need the limits of the cluster for
// themselves: they count the migrations of all policies.
var clusterMigrations sync.Mutex

func takeMigrations(t *testing.T) {
	t.Helper()
	clusterMigrations.Lock()
	t.Cleanup(clusterMigrations.Unlock)
}

// Twenty machines on five nodes, with the migrations that Drawbridge creates: 5 at once as
// soon as there is reason to, never more, 2 from one node, and all of them move in the end.
func TestMigrationsKeepTheLimits(t *testing.T) {
	shareManager(t)
	takeMigrations(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 6)
	policy := ownPolicy(t, namespace, presetPolicy(t, "kubevirt"), nil)
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	platform := &vmcrds.Platform{Namespace: namespace, Target: nodes[5]}
	// Without it a machine with much to do sees them one after the other.
	platform.Proceed = func(string) bool { inCluster, _ := platform.Peaks(); return inCluster >= 5 }
	runPlatform(t, platform)

	const machines = 20 // Four rounds of five.
	var pods []*corev1.Pod
	for i := range machines {
		pods = append(pods, createOwnMachine(t, namespace, fmt.Sprintf("vm-%02d", i), nodes[i%5], "LiveMigrate"))
	}
	var callers sync.WaitGroup
	for _, pod := range pods {
		callers.Go(func() { evictUntil(t, "alice", pod, policy.Spec.Interceptor) })
	}
	callers.Wait()
	// Four rounds take longer than one step of a test, beside all the others.
	cluster.Eventually(t, "all machines to have moved", func(ctx context.Context) error {
		var left []error
		calledFor := map[string]bool{}
		for _, pod := range pods {
			er, err := getRequest(ctx, pod)
			if err != nil {
				return err
			}
			if isTrue(v1alpha1.ConditionEvicted)(er) {
				continue
			}
			left = append(left, fmt.Errorf("pod %s is not evicted: %+v", pod.Name, er.Status))
			// Callers go on, or their wishes would run out on a slow machine; one call keeps
			// all those of a node.
			if !calledFor[pod.Spec.NodeName] {
				calledFor[pod.Spec.NodeName] = true
				evict(t, "alice", pod, eviction(pod))
			}
		}
		return errors.Join(left...)
	})
	inCluster, ofNode := platform.Peaks()
	if inCluster != 5 || ofNode > 2 {
		t.Errorf("want 5 at once and at most 2 of a node, got %d and %d", inCluster, ofNode)
	}
	if created := waitMigrations(t, namespace, machines); len(created) != machines {
		t.Errorf("want one migration for each machine, got %d", len(created))
	}
}

// createOwnMachine is createMachine for the pods of ownPolicy.
func createOwnMachine(t *testing.T, namespace, name, node, strategy string) *corev1.Pod {
	t.Helper()
	machine := vmcrds.New(vmcrds.Machine, namespace, name, map[string]any{
		"status.nodeName": node, "status.phase": "Running", "spec.evictionStrategy": strategy,
		"status.conditions": []any{map[string]any{"type": "LiveMigratable", "status": "True"}},
	})
	createRunning(t, machine)
	pod := launcher(machine, "virt-launcher-"+name, node)
	pod.Labels["kubevirt.io"] = "of-" + namespace
	return createPod(t, pod)
}

// A machine whose migrations fail is tried again later and given up in the end; a
// drain that is canceled stops the rest.
func TestMigrationsAreRetriedAndGivenUp(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	policy := ownPolicy(t, namespace, presetPolicy(t, "kubevirt"), func(s *v1alpha1.EvacuationPolicySpec) {
		s.Migration.RetryLimit = 2
		s.OnFailure = v1alpha1.OnFailureEvict
	})
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Fail: func(string) bool { return true }})
	pod := createOwnMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0]) // It goes on asking, however long others have all the migrations of the cluster.
	er := waitRequest(t, pod, "past the interceptor", func(er *v1alpha1.EvictionRequest) bool {
		return says(policy.Spec.Interceptor, "is given up: 2 migrations failed. The pod will be evicted.")(er)
	})
	migrations := waitMigrations(t, namespace, 2)
	pause := migrations[1].GetCreationTimestamp().Sub(migrations[0].GetCreationTimestamp().Time).Abs()
	if pause < 20*time.Second {
		t.Errorf("the second migration came %s after the first", pause)
	}
	waitEvent(t, er, "EvacuationGivenUp")
	gone(t, pod)
	finishWell(t, drain)
}

func TestCancelStopsMigrations(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	policy := ownPolicy(t, namespace, presetPolicy(t, "kubevirt"), nil)
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Proceed: func(string) bool { return false }})
	pod := createOwnMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	waitMigrations(t, namespace, 1)
	killed(t, drain)
	kubectl(t, "alice", "uncordon", nodes[0])
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitMigrations(t, namespace, 0)
	eventually(t, "the mark to go", func(ctx context.Context) error {
		machine, err := getMachine(ctx, namespace, "vm")
		if err != nil {
			return err
		}
		if node := machine.GetAnnotations()["drawbridge.dev/evacuate-node"]; node != "" {
			return fmt.Errorf("it is marked for %s", node)
		}
		return nil
	})
	lives(t, pod)
}
