package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestMaintenanceEvents(t *testing.T) {
	progress := v1alpha1.MaintenanceProgress{Nodes: 3, NodesCordoned: 3, NodesDrained: 1, PodsPendingEvacuation: 7}
	tests := map[string]struct{ got, want Event }{
		"cordoned": {
			NodeCordoned("a=Cordon"),
			Event{"Normal", "NodeCordoned", "CordonNode", "The node is unschedulable, for NodeMaintenance a=Cordon."},
		},
		"left cordoned": {
			NodeLeftCordoned("a=Drain"),
			Event{"Normal", "NodeLeftCordoned", "UncordonNode", "The node stays unschedulable after NodeMaintenance a=Drain, as it was before. Make it schedulable with kubectl uncordon."},
		},
		"cordoned again": {
			NodeCordonedAgain("a=Drain"),
			Event{"Warning", "NodeCordonedAgain", "CordonNode", "Somebody made the node schedulable in the middle of NodeMaintenance a=Drain. It is unschedulable again; set spec.cordon to false to end that."},
		},
		"a wave": {
			NodeWaveBegan("kernel", "storage", 0),
			Event{"Normal", "NodeWaveBegan", "MaintainNodes", "Wave storage of NodeMaintenance kernel begins on the node: the pods of all earlier waves are gone."},
		},
		"a wave that does not wait": {
			NodeWaveBegan("kernel", "storage", 2),
			Event{"Warning", "NodeWaveForced", "MaintainNodes", "Wave storage of NodeMaintenance kernel begins on the node after the timeout of an earlier wave, of which 2 pods are left."},
		},
		"a taint": {
			NodeTainted("kernel=Drain"),
			Event{"Normal", "NodeTainted", "TaintNode", "The node has the taint drawbridge.dev/maintenance:NoSchedule, for NodeMaintenance kernel=Drain: pods of DaemonSets leave it and are not recreated."},
		},
		"the end of a taint": {
			NodeUntainted("kernel=Drain"),
			Event{"Normal", "NodeUntainted", "UntaintNode", "The node has no taint drawbridge.dev/maintenance any more after NodeMaintenance kernel=Drain: pods of DaemonSets come back to it."},
		},
		"the first stage": {
			MaintenanceStage("", v1alpha1.StageCordon, progress),
			Event{"Normal", "MaintenanceStage", "MaintainNodes", "The maintenance is in stage Cordon: of 3 nodes 3 are cordoned and 1 drained, 7 pods are still to go."},
		},
		"another stage": {
			MaintenanceStage(v1alpha1.StageCordon, v1alpha1.StageDrain, progress),
			Event{"Normal", "MaintenanceStage", "MaintainNodes", "The maintenance is in stage Drain, after Cordon: of 3 nodes 3 are cordoned and 1 drained, 7 pods are still to go."},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}
