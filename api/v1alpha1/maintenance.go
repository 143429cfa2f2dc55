package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of the conditions of a NodeMaintenance.
const (
	// ConditionNodesSelected is True when the selector is valid and matches a node.
	ConditionNodesSelected = "NodesSelected"
	// ConditionCordoned is True when all selected nodes are unschedulable.
	ConditionCordoned = "Cordoned"
	// ConditionDrained is True when drain is true and all pods to evacuate have left all
	// selected nodes (KEP-4212, DrainedCondition).
	ConditionDrained = "Drained"
)

// Reasons of the conditions of a NodeMaintenance, besides ReasonInvalidSelector.
const (
	// ReasonNodesFound says that nodes are selected.
	ReasonNodesFound = "NodesFound"
	// ReasonNoMatchingNodes says that no node is selected.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonNotRequested says that spec does not request it.
	ReasonNotRequested = "NotRequested"
	// ReasonCordoning says that nodes are still to be cordoned.
	ReasonCordoning = "Cordoning"
	// ReasonCordoned says that all are.
	ReasonCordoned = "Cordoned"
	// ReasonDraining says that there are pods left to evacuate.
	ReasonDraining = "Draining"
	// ReasonDrained says that all have left.
	ReasonDrained = "Drained"
)

// Conditions of pods under maintenance (KEP-4212, "Pod API").
const (
	// PodEvacuationRequest is True on a pod that should leave its node.
	PodEvacuationRequest = "EvacuationRequest"
	// PodEvacuationInitiated is True on such a pod when somebody is moving or removing
	// it.
	PodEvacuationInitiated = "EvacuationInitiated"
	// PodReasonNodeMaintenance is the reason of PodEvacuationRequest if a
	// NodeMaintenance requests it. Conditions with other reasons are left alone.
	PodReasonNodeMaintenance = "NodeMaintenance"
	// PodReasonInterceptorStarted is the reason of PodEvacuationInitiated if an
	// interceptor of an EvictionRequest has started. Conditions with other reasons are
	// left alone.
	PodReasonInterceptorStarted = "InterceptorStarted"
)

// Names that a NodeMaintenance uses on other objects.
const (
	// MaintenanceFinalizer keeps a NodeMaintenance until its nodes are released and its
	// requests withdrawn.
	MaintenanceFinalizer = GroupName + "/node-maintenance"
	// MaintenancesAnnotation of a node names the maintenances it is under and the stage
	// of each: NAME=STAGE, sorted and separated by commas, for example
	// "kernel=Drain,rack-7=Planning".
	MaintenancesAnnotation = GroupName + "/node-maintenances"
	// CordonAnnotation of a node says who has made it unschedulable: CordonOurs or
	// CordonOther.
	CordonAnnotation = GroupName + "/node-cordon"
	// CordonOurs says that a maintenance cordoned the node: it becomes schedulable when
	// the last one ends.
	CordonOurs = "maintenance"
	// CordonOther says that the node was unschedulable before: it stays so.
	CordonOther = "other"
	// MaintenancePhaseAnnotation of a node is the stage of the most advanced maintenance
	// that it is under: Planning, Cordon, Drain or DrainComplete.
	MaintenancePhaseAnnotation = GroupName + "/node-maintenance-phase"
	// MaintenanceWavesAnnotation of a node has the wave that each maintenance with
	// spec.waves has begun last on it, and when: NAME=WAVE@TIME, sorted and separated by
	// commas, for example "kernel=storage@2026-06-01T12:00:00Z". Before its first wave, a
	// maintenance is not in it.
	MaintenanceWavesAnnotation = GroupName + "/node-maintenance-waves"
	// MaintenanceTaint is the key of the taint, with the effect NoSchedule, that a node has
	// while the pods of its DaemonSets are to stay away from it (daemonSets of a wave). Their
	// controller makes no pod that does not tolerate it.
	MaintenanceTaint = GroupName + "/maintenance"
	// MaintenanceRequesterSuffix follows the maintenance's name and a period in the
	// requester's name.
	MaintenanceRequesterSuffix = "node-maintenance." + GroupName
)

// RequesterName is the name in spec.requesters of the maintenance's EvictionRequests.
func (m *NodeMaintenance) RequesterName() string { return m.Name + "." + MaintenanceRequesterSuffix }

// Keeps returns why the maintenance does not evict the pod: BlockEmptyDirData or
// BlockUnmanagedPod, or empty if it does. kubectl drain refuses a node by the same
// rules.
func (m *NodeMaintenance) Keeps(pod *corev1.Pod) BlockReason {
	switch {
	case m.Spec.EmptyDirPods == PodsKeep && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }):
		return BlockEmptyDirData
	case m.Spec.UnmanagedPods == PodsKeep && metav1.GetControllerOfNoCopy(pod) == nil:
		return BlockUnmanagedPod
	default:
		return ""
	}
}
