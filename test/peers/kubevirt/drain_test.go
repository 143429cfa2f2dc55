//go:build unix

package kubevirt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// maxWrites is how often Drawbridge may write for one machine, from the first call to
// the end of its pod.
const maxWrites = 6

// scenarios are run with KubeVirt's eviction webhooks and without them. They are told
// whether a mark of KubeVirt's stays, whatever is asked for.
var scenarios = map[string]func(t *testing.T, kept bool){
	"a drain":                                   drains,
	"a NodeMaintenance":                         maintains,
	"uncordoned before the migration starts":    uncordonedBefore,
	"uncordoned while the machine moves":        uncordonedWhile,
	"uncordoned when the machine has moved":     uncordonedAfter,
	"migrations that fail until it is given up": failsForGood,
	"two drains that cross":                     cross,
	"a Pending target":                          pendingTarget,
}

// KubeVirt's eviction webhooks are removed, as the guide says in the end.
func TestAlone(t *testing.T) {
	needKubeVirt(t)
	startManager(t)
	withoutTheirs(t)
	runScenarios(t, false)
}

// KubeVirt's eviction webhooks are there, as when the guide begins.
func TestSideBySide(t *testing.T) {
	needKubeVirt(t)
	startManager(t)
	asksTheirs(t, true)
	runScenarios(t, !takesBack(t))
}

// takesBack reports whether KubeVirt has the subresource that takes its mark back, which
// came with 1.7.
func takesBack(t *testing.T) bool {
	t.Helper()
	found := must(must(discovery.NewDiscoveryClientForConfig(kube.Config()))(t).ServerResourcesForGroupVersion("subresources.kubevirt.io/v1"))(t)
	return slices.ContainsFunc(found.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "virtualmachineinstances/evacuate/cancel" || r.Name == "virtualmachineinstances/evacuate"
	})
}

// runScenarios runs them at the same time, and then the one that takes all the room.
func runScenarios(t *testing.T, kept bool) {
	t.Helper()
	t.Run("all", func(t *testing.T) {
		for name, scenario := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(t, kept)
			})
		}
	})
	// On its own: the limits are those of the cluster.
	t.Run("twenty machines on two nodes", manyMachines)
}

// drains: the machine moves, with one migration, and the drain ends.
func drains(t *testing.T, _ bool) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	mark := kube.RequestLog().Mark()
	drain := startDrain(t, "alice", nodes[0])
	finishWell(t, drain, patience)
	gone(t, pod)
	runsOn(t, namespace, "vm", nodes[1])
	unmarked(t, namespace, "vm")
	waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	waitPhases(t, namespace, "Succeeded")
	items := must(migrations(t.Context(), namespace))(t)
	if node := items[0].GetAnnotations()[vmcrds.EvacuationAnnotation]; node != nodes[0] {
		t.Errorf("KubeVirt does not count the migration as an evacuation of %s: annotation %q", nodes[0], node)
	}
	countWrites(t, mark, namespace, 1)
}

// maintains: nobody calls the eviction API, so Drawbridge begins the evacuation by itself,
// whoever else would.
func maintains(t *testing.T, _ bool) {
	t.Helper()
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	maintenance := builder.NodeMaintenance(namespace).Nodes(nodes[0]).Cordon().Drain().Obj()
	if err := admin.Create(t.Context(), maintenance); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context may have ended by now.
		if err := admin.Delete(context.Background(), maintenance); err != nil {
			t.Error(err)
		}
	})
	gone(t, pod)
	runsOn(t, namespace, "vm", nodes[1])
	unmarked(t, namespace, "vm")
	waitPhases(t, namespace, "Succeeded")
	eventually(t, "the maintenance to have drained the node", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(maintenance), maintenance); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(maintenance.Status.Conditions, v1alpha1.ConditionDrained) {
			return fmt.Errorf("status %+v", maintenance.Status)
		}
		return nil
	})
}

// countWrites wants that Drawbridge has not written more than it may since the mark, for
// each machine of a namespace. Events come on top: they are for people.
func countWrites(t *testing.T, mark cluster.Mark, namespace string, machines int) {
	t.Helper()
	writes := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Writes() && !r.DryRun && r.Namespace == namespace && r.Resource != "events"
	})
	kinds, toKubeVirt := map[string]int{}, 0
	for _, r := range writes {
		if r.Group == vmcrds.Machine.Group {
			toKubeVirt++
		}
		kinds[strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
	}
	t.Logf("%d writes for %d machines, %d of them to KubeVirt's objects: %v", len(writes), machines, toKubeVirt, kinds)
	if toKubeVirt > maxWrites*machines {
		t.Errorf("%d writes for %d machines, want at most %d for each:\n%s", len(writes), machines, maxWrites, writes)
	}
}
