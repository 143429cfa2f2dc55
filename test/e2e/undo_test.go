//go:build unix

package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The replacement is Ready, so the budget allows an eviction, but not available in
// time. While the ReplicaSet removes one of the two, nobody may evict the other.
func TestAnUndoLeavesNoGap(t *testing.T) {
	m := startManager(t, func(o *app.Options) { o.SurgeProgressDeadline = time.Minute })
	a := newApplication(t, 1, progressDeadline(7200), func(w *builder.DeploymentWrapper) { w.Spec.MinReadySeconds = 3600 })
	pod := &a.pods[0]
	// Both are as good, so the ReplicaSet might as well remove this one.
	if err := admin.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+corev1.PodDeletionCost+`":"1"}}}`))); err != nil {
		t.Fatal(err)
	}
	addNodes(t, a.namespace, 1)

	startDrain(t, "alice", a.node)
	a.waitHandedUp(t, pod)
	a.endpoints.Await(t, 2)
	m.Clock.Advance(time.Minute)
	waitRequest(t, pod, "given up", surgeSaid("Not replaced beforehand: no replacement became available within 1m0s"))
	a.endpoints.Await(t, 1)
	a.untouched(t)
}
