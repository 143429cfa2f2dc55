//go:build unix

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// mostWrites is how often Drawbridge writes KubeVirt's objects for one machine, from the
// first call to the end of its pod: the mark, the migration and the end of the mark, and
// some to spare. With its own request and the pod it is mostOfAll. Events are left out.
const (
	mostWrites = 6
	mostOfAll  = 20
)

// An evacuation costs the API server few writes, however long it takes and however often
// the drain asks again.
func TestKubeVirtAnEvacuationCostsFewWrites(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1]})
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"vm-a", "vm-b", "vm-c"} {
		pods[name] = createMachine(t, namespace, name, nodes[0], "LiveMigrate", "True")
		waitGuard(t, pods[name], true)
	}
	mark := kube.RequestLog().Mark()
	drain := startDrain(t, "alice", nodes[0])
	finishWell(t, drain)
	for name, pod := range pods {
		gone(t, pod)
		writes := since(t, mark).Where(func(r cluster.Request) bool {
			about := r.Name == name || r.Name == pod.Name || strings.Contains(r.Name, string(pod.UID)) || strings.Contains(string(r.Body), string(pod.UID))
			return r.User == drawbridge() && r.Writes() && !r.DryRun && r.Namespace == namespace && r.Resource != "events" && about
		})
		kubevirts := writes.Where(func(r cluster.Request) bool { return r.Group == vmcrds.Machine.Group })
		if len(kubevirts) > mostWrites || len(kubevirts) < 3 {
			t.Errorf("machine %s: %d writes of KubeVirt's objects, want 3 to %d:\n%s", name, len(kubevirts), mostWrites, writes)
		}
		if len(writes) > mostOfAll {
			t.Errorf("machine %s: %d writes, want at most %d:\n%s", name, len(writes), mostOfAll, writes)
		}
	}
}
