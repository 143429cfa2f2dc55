package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeMaintenance takes nodes out of service: it makes them unschedulable and evacuates
// their pods (KEP-4212).
//
// Its stages: Planning (cordon and drain are false), Cordon (cordon is true), Drain (both
// are true), DrainComplete (no pods are left to evacuate), and MaintenanceComplete (both
// are false again, and the nodes are schedulable). Deleting the object in any stage makes
// the nodes that it cordoned schedulable, and withdraws the evictions that no other
// requester wants.
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

	// spec says which nodes to maintain, and how.
	// +required
	Spec NodeMaintenanceSpec `json:"spec"`

	// status is the progress of the maintenance.
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

// NodeMaintenanceSpec says which nodes to maintain, and how.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drain) || !self.drain || (has(self.cordon) && self.cordon)",fieldPath=".drain",message="drain requires cordon: set cordon to true, too, or new pods would come to the nodes that are drained"
type NodeMaintenanceSpec struct {
	// nodeSelector selects the nodes by labels (matchExpressions) or by name (matchFields
	// with the key metadata.name, one name per term). A node is selected if any of the
	// terms matches. Nodes that match later are included from then on. Nodes that no
	// longer match are released.
	// +required
	NodeSelector NodeSelector `json:"nodeSelector"`

	// cordon makes the selected nodes unschedulable. When it becomes false, or the object
	// is deleted, the nodes that were schedulable before become schedulable again, unless
	// another maintenance cordons them.
	// +optional
	Cordon bool `json:"cordon,omitempty"`

	// drain evacuates the pods of the selected nodes, except those of DaemonSets (unless the
	// last wave has daemonSets) and mirror pods, with one EvictionRequest each. It requires
	// cordon, and begins when all
	// selected nodes are cordoned. When it becomes false, the remaining requests are
	// withdrawn.
	// +optional
	Drain bool `json:"drain,omitempty"`

	// reason explains the maintenance to people. It becomes the message of the pods'
	// condition EvacuationRequest.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// maxParallelNodes limits how many nodes are drained at the same time. All are
	// cordoned from the start. If unset, all are drained at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxParallelNodes *int32 `json:"maxParallelNodes,omitempty"`

	// unmanagedPods says what happens to pods that no controller would recreate. Evict
	// (the default, as in KEP-4212) evicts them like all others. Keep does not evacuate
	// them, and the node is not drained until they are gone: they count as blocking, with
	// the reason UnmanagedPod. kubectl drawbridge drain sets Keep unless called with
	// --force.
	// +optional
	UnmanagedPods PodTreatment `json:"unmanagedPods,omitempty"`

	// emptyDirPods says what happens to pods with emptyDir volumes, whose data is lost
	// with the pod. Evict (the default, as in KEP-4212) evicts them like all others. Keep
	// does not evacuate them: they count as blocking, with the reason EmptyDirData.
	// kubectl drawbridge drain sets Keep unless called with --delete-emptydir-data.
	// +optional
	EmptyDirPods PodTreatment `json:"emptyDirPods,omitempty"`

	// waves are the order in which pods leave a node. A pod belongs to the last wave of the
	// list that selects it. Pods that no wave selects go first. A wave begins on a node when
	// all pods of the earlier ones have left it, or when timeout says so. If unset, all pods
	// of a node are evacuated at the same time. Changes count for what has not been
	// requested yet.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="self.all(w, !has(w.daemonSets) || !w.daemonSets || w.name == self[size(self) - 1].name)",message="daemonSets may be true only for the last wave: the pods of DaemonSets leave after all others"
	Waves []MaintenanceWave `json:"waves,omitempty"`
}

// PodTreatment says what happens to pods of some kind.
//
// +kubebuilder:validation:Enum=Evict;Keep
type PodTreatment string

// What happens to pods.
const (
	// PodsEvict evicts them like all others; so does the empty value.
	PodsEvict PodTreatment = "Evict"
	// PodsKeep leaves them on the node. The drain waits until they are gone.
	PodsKeep PodTreatment = "Keep"
)

// NodeSelector selects nodes. It is the core NodeSelector, with limits.
type NodeSelector struct {
	// nodeSelectorTerms are alternatives: a node is selected if any of them matches. All
	// requirements of a term must match.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.matchExpressions) || has(t.matchFields))",message="each term must have matchExpressions or matchFields: an empty term matches no node"
	NodeSelectorTerms []corev1.NodeSelectorTerm `json:"nodeSelectorTerms"`
}

// MaintenanceStage is the progress of a maintenance or of one of its nodes.
//
// +kubebuilder:validation:Enum=Planning;Cordon;Drain;DrainComplete;MaintenanceComplete
type MaintenanceStage string

// Stages of a maintenance (KEP-4212, "NodeMaintenance API"), and of its nodes.
const (
	// StagePlanning says that nothing has been done yet.
	StagePlanning MaintenanceStage = "Planning"
	// StageCordon says that nodes are, or are being made, unschedulable. A node to drain
	// stays in this stage until its turn.
	StageCordon MaintenanceStage = "Cordon"
	// StageDrain says that pods are evacuated.
	StageDrain MaintenanceStage = "Drain"
	// StageDrainComplete says that no pods are left to evacuate.
	StageDrainComplete MaintenanceStage = "DrainComplete"
	// StageMaintenanceComplete says that the nodes have been released.
	StageMaintenanceComplete MaintenanceStage = "MaintenanceComplete"
)

// MaintenanceStages are all stages, in the order in which a maintenance goes through
// them. A node is in none of them once it has been given back.
func MaintenanceStages() []MaintenanceStage {
	return []MaintenanceStage{StagePlanning, StageCordon, StageDrain, StageDrainComplete, StageMaintenanceComplete}
}

// NodeMaintenanceStatus is how far a maintenance is. Only the controller writes it.
type NodeMaintenanceStatus struct {
	// observedGeneration is the metadata.generation that the status is based on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// stage of the maintenance as a whole: Planning, Cordon, Drain, DrainComplete or
	// MaintenanceComplete.
	// +optional
	Stage MaintenanceStage `json:"stage,omitempty"`

	// startTime is when the controller began to cordon the nodes, after cordon last
	// became true.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the maintenance was complete. For the drain, see the
	// condition Drained.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// progress has the counts over all selected nodes.
	// +optional
	Progress MaintenanceProgress `json:"progress,omitempty"`

	// nodes are the selected nodes, sorted by name. If there are more than 500, it lists
	// unfinished nodes first, then others; progress counts all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Nodes []MaintenanceNodeStatus `json:"nodes,omitempty"`

	// conditions of the maintenance. NodesSelected: the selector is valid and matches at
	// least one node. Cordoned: all selected nodes are unschedulable. Drained: drain is
	// true, and all pods to evacuate have left all selected nodes.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime > timestamp('1970-01-01T00:00:00Z') && c.lastTransitionTime < timestamp('9999-12-31T00:00:00Z'))",message="lastTransitionTime must be a time of this epoch in RFC 3339"
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

	// podsPendingEvacuation is how many pods are left to evacuate.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsPendingEvacuation int32 `json:"podsPendingEvacuation"`

	// podsEvacuating is how many of those are being evacuated by an interceptor.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsEvacuating int32 `json:"podsEvacuating"`

	// podsBlocking is how many of those are stuck.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsBlocking int32 `json:"podsBlocking"`

	// podsWaiting is how many of those are left to their owners for a while, because they
	// have no interceptor.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsWaiting int32 `json:"podsWaiting,omitempty"`

	// podsEvacuated is how many pods have left since the drain began.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsEvacuated int32 `json:"podsEvacuated"`
}

// MaintenanceNodeStatus is the progress of a maintenance on one node.
type MaintenanceNodeStatus struct {
	// name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// stage of the node. Cordon while drain is true means that the node waits for its
	// turn.
	// +required
	Stage MaintenanceStage `json:"stage"`

	// podsPendingEvacuation is how many pods are left to evacuate.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsPendingEvacuation int32 `json:"podsPendingEvacuation"`

	// podsEvacuating is how many of those have the condition EvacuationInitiated: an
	// interceptor is working.
	// +required
	// +kubebuilder:validation:Minimum=0
	PodsEvacuating int32 `json:"podsEvacuating"`

	// podsBlocking is how many of those are stuck.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsBlocking int32 `json:"podsBlocking,omitempty"`

	// podsWaiting is how many of those are left to their owners for a while, because they
	// have no interceptor: for maintenance.evacuationWait after the condition
	// EvacuationRequest was set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsWaiting int32 `json:"podsWaiting,omitempty"`

	// waitingUntil is when the eviction of the last of those is requested.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	WaitingUntil *metav1.Time `json:"waitingUntil,omitempty"`

	// podsEvacuated is how many pods have left the node since its drain began.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsEvacuated int32 `json:"podsEvacuated,omitempty"`

	// wave is the name of the last wave of spec.waves that has begun on the node. It is empty
	// before the first one, while pods go that no wave selects.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Wave string `json:"wave,omitempty"`

	// podsInLaterWaves is how many pods left to evacuate wait, because their wave has not
	// begun.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsInLaterWaves int32 `json:"podsInLaterWaves,omitempty"`

	// blockingPods are some of the stuck pods, sorted by namespace and name: at most 3
	// per node and 100 in total. podsBlocking counts all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	BlockingPods []BlockingPod `json:"blockingPods,omitempty"`

	// startTime is when the drain of the node began.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the node was drained.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// BlockReason says in one word why a pod is stuck.
//
// +kubebuilder:validation:Enum=EvictionRefused;BudgetNeverAllows;InterceptorSilent;OwnerSilent;RequestRefused;RequestFailed;Terminating;UnmanagedPod;EmptyDirData
type BlockReason string

// Why pods are stuck.
const (
	// BlockEvictionRefused says that the eviction is refused, most often by a budget.
	BlockEvictionRefused BlockReason = "EvictionRefused"
	// BlockBudgetNeverAllows says that the eviction is refused by a PodDisruptionBudget
	// that can never allow it, by arithmetic, as long as its spec and the replicas stay.
	BlockBudgetNeverAllows BlockReason = "BudgetNeverAllows"
	// BlockInterceptorSilent says that the active interceptor has not reported for a
	// while.
	BlockInterceptorSilent BlockReason = "InterceptorSilent"
	// BlockOwnerSilent says that the pod's owner has set EvacuationInitiated and has not
	// reported for a while.
	BlockOwnerSilent BlockReason = "OwnerSilent"
	// BlockRequestRefused says that the EvictionRequest was refused: the pod cannot be
	// evicted this way.
	BlockRequestRefused BlockReason = "RequestRefused"
	// BlockRequestFailed says that the EvictionRequest could not be written.
	BlockRequestFailed BlockReason = "RequestFailed"
	// BlockTerminating says that the pod has not ended after its grace period.
	BlockTerminating BlockReason = "Terminating"
	// BlockUnmanagedPod says that no controller would recreate the pod, and the
	// maintenance keeps such pods.
	BlockUnmanagedPod BlockReason = "UnmanagedPod"
	// BlockEmptyDirData says that the pod has emptyDir volumes, and the maintenance keeps
	// such pods.
	BlockEmptyDirData BlockReason = "EmptyDirData"
)

// BlockingPod is a pod that is stuck.
type BlockingPod struct {
	// namespace of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// reason in one word: EvictionRefused, BudgetNeverAllows, InterceptorSilent,
	// OwnerSilent, RequestRefused, RequestFailed, Terminating, UnmanagedPod or EmptyDirData.
	// +required
	Reason BlockReason `json:"reason"`

	// message explains the reason to people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}
