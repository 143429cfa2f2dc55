package events

import (
	"fmt"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Reasons of the events of NodeMaintenances.
const (
	ReasonNodeCordoned            = "NodeCordoned"
	ReasonNodeFoundCordoned       = "NodeFoundCordoned"
	ReasonNodeCordonedAgain       = "NodeCordonedAgain"
	ReasonNodeUncordoned          = "NodeUncordoned"
	ReasonNodeLeftCordoned        = "NodeLeftCordoned"
	ReasonNodeWaveBegan           = "NodeWaveBegan"
	ReasonNodeWaveForced          = "NodeWaveForced"
	ReasonNodeTainted             = "NodeTainted"
	ReasonNodeUntainted           = "NodeUntainted"
	ReasonMaintenanceStage        = "MaintenanceStage"
	ReasonMaintenanceWithoutNodes = "MaintenanceWithoutNodes"
)

const (
	actionCordon   = "CordonNode"
	actionUncordon = "UncordonNode"
	actionTaint    = "TaintNode"
	actionUntaint  = "UntaintNode"
	actionMaintain = "MaintainNodes"
)

// NodeCordoned says that a node was made unschedulable. Stages are the maintenances of
// the node, as in v1alpha1.MaintenancesAnnotation.
func NodeCordoned(stages string) Event {
	return normal(ReasonNodeCordoned, actionCordon, "The node is unschedulable, for NodeMaintenance %s.", stages)
}

// NodeFoundCordoned says that a node was unschedulable already.
func NodeFoundCordoned(stages string) Event {
	return normal(ReasonNodeFoundCordoned, actionCordon, "The node was unschedulable before NodeMaintenance %s, and will stay so after it.", stages)
}

// NodeCordonedAgain says that a node was made schedulable in the middle.
func NodeCordonedAgain(stages string) Event {
	return warning(ReasonNodeCordonedAgain, actionCordon, "Somebody made the node schedulable in the middle of NodeMaintenance %s. It is unschedulable again; set spec.cordon to false to end that.", stages)
}

// NodeUncordoned says that a node was made schedulable.
func NodeUncordoned(stages string) Event {
	return normal(ReasonNodeUncordoned, actionUncordon, "The node is schedulable again after NodeMaintenance %s.", stages)
}

// NodeLeftCordoned says that a node stays unschedulable.
func NodeLeftCordoned(stages string) Event {
	return normal(ReasonNodeLeftCordoned, actionUncordon, "The node stays unschedulable after NodeMaintenance %s, as it was before. Make it schedulable with kubectl uncordon.", stages)
}

// NodeWaveBegan says that the eviction of the pods of another wave begins on a node, although so
// many pods of earlier ones are left.
func NodeWaveBegan(maintenance, wave string, left int32) Event {
	if left > 0 {
		return warning(ReasonNodeWaveForced, actionMaintain, "Wave %s of NodeMaintenance %s begins on the node after the timeout of an earlier wave, of which %d pods are left.", wave, maintenance, left)
	}
	return normal(ReasonNodeWaveBegan, actionMaintain, "Wave %s of NodeMaintenance %s begins on the node: the pods of all earlier waves are gone.", wave, maintenance)
}

// NodeTainted says that a node got the taint that keeps pods of DaemonSets from it.
func NodeTainted(stages string) Event {
	return normal(ReasonNodeTainted, actionTaint, "The node has the taint %s:NoSchedule, for NodeMaintenance %s: pods of DaemonSets leave it and are not recreated.", v1alpha1.MaintenanceTaint, stages)
}

// NodeUntainted says that it was removed.
func NodeUntainted(stages string) Event {
	return normal(ReasonNodeUntainted, actionUntaint, "The node has no taint %s any more after NodeMaintenance %s: pods of DaemonSets come back to it.", v1alpha1.MaintenanceTaint, stages)
}

// MaintenanceStage says that a maintenance has changed its stage.
func MaintenanceStage(from, to v1alpha1.MaintenanceStage, p v1alpha1.MaintenanceProgress) Event {
	note := fmt.Sprintf("The maintenance is in stage %s", to)
	if from != "" {
		note += fmt.Sprintf(", after %s", from)
	}
	return normal(ReasonMaintenanceStage, actionMaintain, "%s: of %d nodes %d are cordoned and %d drained, %d pods are still to go.", note, p.Nodes, p.NodesCordoned, p.NodesDrained, p.PodsPendingEvacuation)
}

// MaintenanceWithoutNodes says that a maintenance selects nothing, and why.
func MaintenanceWithoutNodes(why string) Event {
	return warning(ReasonMaintenanceWithoutNodes, actionMaintain, "%s", why)
}
