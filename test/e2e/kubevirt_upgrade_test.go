//go:build unix

package e2e

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// oldPolicy is a policy as a preset of the first charts was, for the pods of the test.
func oldPolicy(t *testing.T, namespace, name string) *v1alpha1.EvacuationPolicy {
	t.Helper()
	policy := ownPolicy(t, namespace, readPolicy(t, filepath.Join("testdata", "presets-before", name+".yaml")), nil)
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	return policy
}

// upgrade gives a policy the spec of today's preset, as helm upgrade does.
func upgrade(t *testing.T, policy *v1alpha1.EvacuationPolicy) {
	t.Helper()
	eventually(t, "the policy to be upgraded", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		spec := presetPolicy(t, "kubevirt").Spec
		spec.Interceptor, spec.Pods = policy.Spec.Interceptor, policy.Spec.Pods
		policy.Spec = spec
		return admin.Update(ctx, policy)
	})
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
}

// An upgrade in the middle of a migration that the old preset has made: it goes on, there
// is no second one, and the drain ends.
func TestKubeVirtAnUpgradeGoesOnWithTheMigrationsOfBefore(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	policy := oldPolicy(t, namespace, "kubevirt-with-migrations")
	var mayMigrate atomic.Bool
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Proceed: func(string) bool { return mayMigrate.Load() }})
	pod := createOwnMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	before := waitMigrations(t, namespace, 1)[0].GetName()
	upgrade(t, policy)
	mayMigrate.Store(true)
	result := finishWell(t, drain)
	saysAll(t, "standard output", result.Stdout, "node/"+nodes[0]+" drained")
	gone(t, pod)
	if now := waitMigrations(t, namespace, 1)[0].GetName(); now != before {
		t.Errorf("the migration %s took the place of %s", now, before)
	}
	waitMark(t, namespace, "vm", "")
}

// One that is canceled after the upgrade takes back what the old preset has written.
func TestKubeVirtAnUpgradeCallsOffWhatWasBegunBefore(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	policy := oldPolicy(t, namespace, "kubevirt-with-migrations")
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Proceed: func(string) bool { return false }})
	pod := createOwnMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	waitMigrations(t, namespace, 1)
	upgrade(t, policy)
	killed(t, drain)
	kubectl(t, "alice", "uncordon", nodes[0])
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitMark(t, namespace, "vm", "")
	waitMigrations(t, namespace, 0)
	lives(t, pod)
}

// The old preset without migrations of its own has marked where KubeVirt discards it: the
// drain had no end. After the upgrade it has one, without a pause of minutes.
func TestKubeVirtAnUpgradeFreesDrainsWhoseMarksWereDiscarded(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	policy := oldPolicy(t, namespace, "kubevirt")
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Evacuates: true})
	pod := createOwnMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	drain := startDrain(t, "alice", nodes[0])
	waitPolicy(t, policy.Name, v1alpha1.ConditionMarking, metav1.ConditionFalse, v1alpha1.ReasonDiscarded)
	upgrade(t, policy)
	result := finishWell(t, drain)
	saysAll(t, "standard output", result.Stdout, "node/"+nodes[0]+" drained")
	gone(t, pod)
	waitPolicy(t, policy.Name, v1alpha1.ConditionMarking, metav1.ConditionTrue, "")
}
