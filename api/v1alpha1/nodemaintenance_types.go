package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeMaintenance is the wish to take some nodes out of service: to make them
// unschedulable, and to have their pods evacuated (KEP-4212).
//
// Its stages: Planning (cordon and drain are false), Cordon (cordon is true), Drain
// (both are true), DrainComplete (no pod is left that is to go), and
// MaintenanceComplete (both are false again, and the nodes are schedulable).
// Deleting it in any of them makes the nodes schedulable that it cordoned, and
// withdraws the evictions that nobody else wants.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nm
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.stage`,description="How far the maintenance is."
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.progress.nodes`,description="How many nodes are selected."
// +kubebuilder:printcolumn:name="Drained",type=integer,JSONPath=`.status.progress.nodesDrained`,description="How many of them are drained."
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.progress.podsPendingEvacuation`,description="How many pods are still to go."
// +kubebuilder:printcolumn:name="Blocked",type=integer,JSONPath=`.status.progress.podsBlocking`,description="How many of them do not get on."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 200 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="metadata.name becomes part of a domain name: it must have at most 200 characters, and at most 63 between two periods"
type NodeMaintenance struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which nodes, and what is to be done with them.
	// +required
	Spec NodeMaintenanceSpec `json:"spec"`

	// status is how far that is.
	// +optional
	Status NodeMaintenanceStatus `json:"status,omitempty"`
}

// NodeMaintenanceList is a list of NodeMaintenances.
//
// +kubebuilder:object:root=true
type NodeMaintenanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeMaintenance `json:"items"`
}

// NodeMaintenanceSpec says which nodes, and what is to be done with them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drain) || !self.drain || (has(self.cordon) && self.cordon)",fieldPath=".drain",message="drain requires cordon: set cordon to true, too, or new pods would come to the nodes that are drained"
type NodeMaintenanceSpec struct {
	// nodeSelector selects the nodes by labels (matchExpressions) or by name
	// (matchFields with the key metadata.name, one name per term). A node is selected
	// if any of the terms matches. Nodes that match later take part from then on;
	// those that cease to match are released.
	// +required
	NodeSelector NodeSelector `json:"nodeSelector"`

	// cordon makes the selected nodes unschedulable. When it is false again, or the
	// object is deleted, those are made schedulable that were so before and that no
	// other maintenance cordons.
	// +optional
	Cordon bool `json:"cordon,omitempty"`

	// drain has the pods of the selected nodes evacuated, except those of DaemonSets
	// and mirror pods, by one EvictionRequest each. It begins when all selected nodes
	// are cordoned, and requires cordon. When it is false again, what is not done is
	// withdrawn.
	// +optional
	Drain bool `json:"drain,omitempty"`

	// reason says for people why; it becomes the message of the pods' condition
	// EvacuationRequest.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// maxParallelNodes limits how many nodes are drained at the same time. All are
	// cordoned from the start. Without it, all are drained at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxParallelNodes *int32 `json:"maxParallelNodes,omitempty"`

	// unmanagedPods says what becomes of pods that no controller would make again:
	// Evict (the default, as KEP-4212 has it) evicts them like all others, Keep leaves
	// them where they are. A pod that is kept is not evacuated in any way, and the node
	// is not drained before it has gone: it counts as blocking, with the reason
	// UnmanagedPod. kubectl drawbridge drain sets Keep, unless it is called with --force.
	// +optional
	UnmanagedPods PodTreatment `json:"unmanagedPods,omitempty"`

	// emptyDirPods says what becomes of pods with emptyDir volumes, whose data is lost
	// with them: Evict (the default, as KEP-4212 has it) evicts them like all others,
	// Keep leaves them where they are. They count as blocking then, with the reason
	// EmptyDirData. kubectl drawbridge drain sets Keep, unless it is called with
	// --delete-emptydir-data.
	// +optional
	EmptyDirPods PodTreatment `json:"emptyDirPods,omitempty"`
}

// PodTreatment says what becomes of pods of some kind.
//
// +kubebuilder:validation:Enum=Evict;Keep
type PodTreatment string

// What becomes of pods.
const (
	// PodsEvict evicts them like all others; so does the empty value.
	PodsEvict PodTreatment = "Evict"
	// PodsKeep leaves them where they are; the drain waits until they have gone.
	PodsKeep PodTreatment = "Keep"
)

// NodeSelector selects nodes. It is the core NodeSelector, with limits.
type NodeSelector struct {
	// nodeSelectorTerms are alternatives: a node is selected if any of them matches.
	// Within a term all requirements must hold.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.matchExpressions) || has(t.matchFields))",message="each term must have matchExpressions or matchFields: an empty term matches no node"
	NodeSelectorTerms []corev1.NodeSelectorTerm `json:"nodeSelectorTerms"`
}

// MaintenanceStage says how far a maintenance is, or one of its nodes.
//
// +kubebuilder:validation:Enum=Planning;Cordon;Drain;DrainComplete;MaintenanceComplete
type MaintenanceStage string

// Stages of a maintenance (KEP-4212, "NodeMaintenance API"), and of its nodes.
const (
	// StagePlanning says that nothing has been done yet.
	StagePlanning MaintenanceStage = "Planning"
	// StageCordon says that nodes are made unschedulable, or are so. A node that is
	// to be drained stays here until it is its turn.
	StageCordon MaintenanceStage = "Cordon"
	// StageDrain says that pods are evacuated.
	StageDrain MaintenanceStage = "Drain"
	// StageDrainComplete says that no pod is left that is to go.
	StageDrainComplete MaintenanceStage = "DrainComplete"
	// StageMaintenanceComplete says that the nodes have been given back.
	StageMaintenanceComplete MaintenanceStage = "MaintenanceComplete"
)

// MaintenanceStages are all stages, in the order in which a maintenance goes through
// them. A node is in none of them once it has been given back.
func MaintenanceStages() []MaintenanceStage {
	return []MaintenanceStage{StagePlanning, StageCordon, StageDrain, StageDrainComplete, StageMaintenanceComplete}
}

// NodeMaintenanceStatus is how far a maintenance is. Only the controller writes it.
type NodeMaintenanceStatus struct {
	// observedGeneration is the metadata.generation that the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// stage of the maintenance as a whole: Planning, Cordon, Drain, DrainComplete or
	// MaintenanceComplete.
	// +optional
	Stage MaintenanceStage `json:"stage,omitempty"`

	// startTime is when the nodes began to be cordoned, the last time that cordon
	// became true.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the maintenance was complete. When the drain was, says
	// the condition Drained.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// progress has the counts over all selected nodes.
	// +optional
	Progress MaintenanceProgress `json:"progress,omitempty"`

	// nodes are the selected nodes, sorted by name. Of more than 500 the first ones
	// that are not done stand here, then the first of the others; progress counts all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Nodes []MaintenanceNodeStatus `json:"nodes,omitempty"`

	// conditions of the maintenance. NodesSelected: the selector is valid and matches
	// at least one node. Cordoned: all selected nodes are unschedulable. Drained: all
	// pods that are to go have gone from all selected nodes, and drain is true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime > timestamp('1970-01-01T00:00:00Z'))",message="lastTransitionTime must be a time of this epoch in RFC 3339"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaintenanceProgress has the counts over all nodes of a maintenance.
type MaintenanceProgress struct {
	// nodes is how many nodes are selected.
	// +required
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes"`

	// nodesCordoned is how many of them are unschedulable on behalf of this
	// maintenance.
	// +required
	// +kubebuilder:validation:Minimum=0
	NodesCordoned int32 `json:"nodesCordoned"`

	// nodesDraining is how many of them are being drained now.
	// +required
	// +kubebuilder:validation:Minimum=0
	NodesDraining int32 `json:"nodesDraining"`

	// nodesDrained is how many of them are drained.
	// +required
	// +kubebuilder:validation:Minimum=0
	NodesDrained int32 `json:"nodesDrained"`

	// podsPendingEvacuation is how many pods are still to go.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsPendingEvacuation int32 `json:"podsPendingEvacuation"`

	// podsEvacuating is how many of those are being evacuated by an interceptor.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsEvacuating int32 `json:"podsEvacuating"`

	// podsBlocking is how many of those do not get on.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsBlocking int32 `json:"podsBlocking"`

	// podsWaiting is how many of those are left to their owners for a while, because
	// nobody intercepts them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsWaiting int32 `json:"podsWaiting,omitempty"`

	// podsEvacuated is how many pods have gone since the drain began.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsEvacuated int32 `json:"podsEvacuated"`
}

// MaintenanceNodeStatus is how far a maintenance is on one node.
type MaintenanceNodeStatus struct {
	// name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// stage of the node. Cordon, while drain is true, says that it waits for its turn.
	// +required
	Stage MaintenanceStage `json:"stage"`

	// podsPendingEvacuation is how many pods the maintenance wants to go and are still
	// there.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsPendingEvacuation int32 `json:"podsPendingEvacuation"`

	// podsEvacuating is how many of those have the condition EvacuationInitiated: an
	// interceptor is at work.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsEvacuating int32 `json:"podsEvacuating"`

	// podsBlocking is how many of those do not get on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsBlocking int32 `json:"podsBlocking,omitempty"`

	// podsWaiting is how many of those are left to their owners for a while, because
	// nobody intercepts them: for maintenance.evacuationWait after they were told by the
	// condition EvacuationRequest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsWaiting int32 `json:"podsWaiting,omitempty"`

	// waitingUntil is when the last of those is asked to go.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	WaitingUntil *metav1.Time `json:"waitingUntil,omitempty"`

	// podsEvacuated is how many pods have gone from the node since its drain began.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsEvacuated int32 `json:"podsEvacuated,omitempty"`

	// blockingPods are some of the pods that do not get on, sorted by namespace and
	// name: at most 3 of a node, and 100 in all. podsBlocking counts all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	BlockingPods []BlockingPod `json:"blockingPods,omitempty"`

	// startTime is when the drain of the node began.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the node was drained.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// BlockReason says in one word why a pod does not get on.
//
// +kubebuilder:validation:Enum=EvictionRefused;InterceptorSilent;OwnerSilent;RequestRefused;RequestFailed;Terminating;UnmanagedPod;EmptyDirData
type BlockReason string

// Why pods do not get on.
const (
	// BlockEvictionRefused says that the eviction is refused, most often by a budget.
	BlockEvictionRefused BlockReason = "EvictionRefused"
	// BlockInterceptorSilent says that the interceptor whose turn it is has not been
	// heard of for a while.
	BlockInterceptorSilent BlockReason = "InterceptorSilent"
	// BlockOwnerSilent says that the pod's owner has set EvacuationInitiated and has not
	// been heard of for a while.
	BlockOwnerSilent BlockReason = "OwnerSilent"
	// BlockRequestRefused says that the EvictionRequest was refused: the pod cannot be
	// evicted in this way.
	BlockRequestRefused BlockReason = "RequestRefused"
	// BlockRequestFailed says that the EvictionRequest could not be written.
	BlockRequestFailed BlockReason = "RequestFailed"
	// BlockTerminating says that the pod does not end although its grace period is over.
	BlockTerminating BlockReason = "Terminating"
	// BlockUnmanagedPod says that no controller would make the pod again, and that the
	// maintenance keeps such pods.
	BlockUnmanagedPod BlockReason = "UnmanagedPod"
	// BlockEmptyDirData says that the pod has emptyDir volumes, and that the maintenance
	// keeps such pods.
	BlockEmptyDirData BlockReason = "EmptyDirData"
)

// BlockingPod is a pod that does not get on.
type BlockingPod struct {
	// namespace of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// reason in one word: EvictionRefused, InterceptorSilent, OwnerSilent,
	// RequestRefused, RequestFailed, Terminating, UnmanagedPod or EmptyDirData.
	// +required
	Reason BlockReason `json:"reason"`

	// message says it for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}
