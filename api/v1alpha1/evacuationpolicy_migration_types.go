package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// MigrationSpec describes the platform's migration objects, one object per migration.
// They live in the namespace of their workload.
//
// +kubebuilder:validation:XValidation:rule="!has(self.template) || has(self.sourceNode)",message="sourceNode is required with a template, for the limit per node"
// +kubebuilder:validation:XValidation:rule="has(self.template) || has(self.ours)",message="ours is required without a template, to tell evacuations from other migrations"
type MigrationSpec struct {
	// apiVersion of the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// workloadName is an expression over the variable migration, of type string: the
	// name of the workload that the migration moves.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	WorkloadName string `json:"workloadName"`

	// finished is an expression over the variable migration, of type bool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	Finished string `json:"finished"`

	// failed is an expression over the variable migration, of type bool: the migration
	// has finished without moving the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	Failed string `json:"failed"`

	// finishedAt is an expression over the variable migration, of type timestamp, or
	// string in RFC 3339, or null. If unset, the backoff starts at the creation time.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	FinishedAt string `json:"finishedAt,omitempty"`

	// ours is an expression over the variable migration, of type bool: the migration was
	// made to evacuate a node. If unset, only migrations that Drawbridge created count.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	Ours string `json:"ours,omitempty"`

	// sourceNode is an expression over the variable workload, of type string: the
	// node that the workload would leave, for the limit per node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	SourceNode string `json:"sourceNode,omitempty"`

	// createWhen is an expression of type bool over pod, workload and config: whether to
	// create a migration from the template. It is false if the platform creates one
	// itself. If unset, one is always created.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	CreateWhen string `json:"createWhen,omitempty"`

	// template is the object to create. A string that consists of "${EXPRESSION}" is
	// replaced by the expression's value. apiVersion, kind and namespace are filled in.
	// The name is metadata.generateName (default: evacuation-), followed by the pod's
	// UID and the number of the attempt.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template *runtime.RawExtension `json:"template,omitempty"`

	// parallelPerCluster is how many migrations of this kind may be unfinished at the
	// same time, no matter who created them.
	// +optional
	// +default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	ParallelPerCluster int32 `json:"parallelPerCluster,omitempty"`

	// parallelOutboundPerNode is how many of them may leave one node.
	// +optional
	// +default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	ParallelOutboundPerNode int32 `json:"parallelOutboundPerNode,omitempty"`

	// retryLimit is how many migrations of one evacuation may fail before Drawbridge
	// gives it up. Drawbridge counts the objects, so the platform must keep that many.
	// +optional
	// +default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	RetryLimit int32 `json:"retryLimit,omitempty"`

	// onCancel says what happens to the unfinished migrations of an evacuation that is
	// no longer wanted: Delete or Keep.
	// +optional
	// +default="Delete"
	OnCancel OnCancel `json:"onCancel,omitempty"`
}

// OnCancel says what happens to the unfinished migrations of an evacuation that is no
// longer wanted.
//
// +kubebuilder:validation:Enum=Delete;Keep
type OnCancel string

// What happens to unfinished migrations.
const (
	OnCancelDelete OnCancel = "Delete"
	OnCancelKeep   OnCancel = "Keep"
)

// Labels of the migration objects that Drawbridge creates.
const (
	// MigrationPolicyLabel names the EvacuationPolicy.
	MigrationPolicyLabel = GroupName + "/evacuation-policy"
	// MigrationRequestLabel is the UID of the pod, which is the name of the
	// EvictionRequest.
	MigrationRequestLabel = GroupName + "/evacuation-request"
	// MigrationAttemptLabel counts the migrations of one evacuation, from 1.
	MigrationAttemptLabel = GroupName + "/evacuation-attempt"
)
