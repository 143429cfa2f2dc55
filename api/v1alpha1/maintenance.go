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
	// ConditionDrained is True when drain is wanted and all pods that are to go have
	// gone from all selected nodes (KEP-4212, DrainedCondition).
	ConditionDrained = "Drained"
)

// Reasons of the conditions of a NodeMaintenance. ReasonInvalidSelector is another one.
const (
	// ReasonNodesFound says that nodes are selected.
	ReasonNodesFound = "NodesFound"
	// ReasonNoMatchingNodes says that no node is selected.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonNotRequested says that spec does not ask for it.
	ReasonNotRequested = "NotRequested"
	// ReasonCordoning says that nodes are still to be cordoned.
	ReasonCordoning = "Cordoning"
	// ReasonCordoned says that all are.
	ReasonCordoned = "Cordoned"
	// ReasonDraining says that pods are still to go.
	ReasonDraining = "Draining"
	// ReasonDrained says that all have gone.
	ReasonDrained = "Drained"
)

// Conditions of pods under maintenance (KEP-4212, "Pod API").
const (
	// PodEvacuationRequest is True on a pod that is to leave its node.
	PodEvacuationRequest = "EvacuationRequest"
	// PodEvacuationInitiated is True on such a pod when somebody is moving or removing
	// it.
	PodEvacuationInitiated = "EvacuationInitiated"
	// PodReasonNodeMaintenance is the reason of PodEvacuationRequest if the wish comes
	// from a NodeMaintenance. Conditions of other reasons are left alone.
	PodReasonNodeMaintenance = "NodeMaintenance"
	// PodReasonInterceptorStarted is the reason of PodEvacuationInitiated if it tells of
	// an interceptor of an EvictionRequest. Conditions of other reasons are left alone.
	PodReasonInterceptorStarted = "InterceptorStarted"
)

// Words of a NodeMaintenance on other objects.
const (
	// MaintenanceFinalizer keeps a NodeMaintenance until its nodes are released and its
	// wishes withdrawn.
	MaintenanceFinalizer = GroupName + "/node-maintenance"
	// MaintenancesAnnotation of a node names the maintenances it is under and how far
	// each of them is: NAME=STAGE, sorted and separated by commas, for example
	// "kernel=Drain,rack-7=Planning".
	MaintenancesAnnotation = GroupName + "/node-maintenances"
	// CordonAnnotation of a node says who has made it unschedulable: CordonOurs or
	// CordonOther.
	CordonAnnotation = GroupName + "/node-cordon"
	// CordonOurs says that a maintenance cordoned the node: it becomes schedulable with
	// the end of the last one.
	CordonOurs = "maintenance"
	// CordonOther says that the node was unschedulable before: it stays so.
	CordonOther = "other"
	// MaintenancePhaseAnnotation of a node is the stage of the most advanced maintenance
	// that it is under: Planning, Cordon, Drain or DrainComplete.
	MaintenancePhaseAnnotation = GroupName + "/node-maintenance-phase"
	// MaintenanceRequesterSuffix follows a maintenance's name and a period in the name
	// of its requester.
	MaintenanceRequesterSuffix = "node-maintenance." + GroupName
)

// RequesterName is the name in spec.requesters of the maintenance's EvictionRequests.
func (m *NodeMaintenance) RequesterName() string { return m.Name + "." + MaintenanceRequesterSuffix }

// Keeps says why the maintenance leaves the pod where it is, empty if it does not:
// BlockEmptyDirData or BlockUnmanagedPod. The rules are those by which kubectl drain
// refuses a node.
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
