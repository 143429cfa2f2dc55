package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EvacuationPolicy describes in CEL how a platform moves the workload of a pod, so that
// the platform does not need its own eviction webhook: which object is behind the pod,
// whether to move it, how to request the move and how to read its progress.
//
// Drawbridge acts as the interceptor named in spec.interceptor. An EvictionInterceptor
// of the same name selects the pods to intercept.
//
// Expressions can use these variables: pod (the fields that Drawbridge keeps: metadata,
// some of spec and of status), workload (the object behind the pod, or the pod itself if
// the policy names no workload), config (the object of spec.config, or an empty map if
// there is none), request (requesters: the names of the requesters; callers: the kinds
// of tools among them; name and namespace of the EvictionRequest) and, in
// spec.migration, migration.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=evp
// +kubebuilder:printcolumn:name="Interceptor",type=string,JSONPath=`.spec.interceptor`,description="The name under which Drawbridge acts."
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the policy is well formed."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the kinds it needs are installed and may be used."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EvacuationPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how pods are evacuated.
	// +required
	Spec EvacuationPolicySpec `json:"spec"`

	// status is what the controller observed.
	// +optional
	Status EvacuationPolicyStatus `json:"status,omitempty"`
}

// EvacuationPolicyList is a list of EvacuationPolicies.
//
// +kubebuilder:object:root=true
type EvacuationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EvacuationPolicy `json:"items"`
}

// EvacuationPolicySpec says how pods are evacuated.
//
// Drawbridge writes with its own permissions. Therefore a policy may write only labels
// and annotations of a pod, and no object of the kinds that Drawbridge itself uses.
//
// +kubebuilder:validation:XValidation:rule="has(self.mark) == has(self.unmark)",message="mark and unmark belong together: what is marked must be unmarked when nobody wants the eviction any more"
// +kubebuilder:validation:XValidation:rule="!has(self.mark) || (has(self.workload) && !(self.workload.apiVersion == 'v1' && self.workload.kind == 'Pod')) || ((!has(self.mark.subresource) || size(self.mark.subresource) == 0) && self.mark.operations.all(o, o.op == 'test' || o.path.matches('^/metadata/(labels|annotations)(/.*)?$')))",fieldPath=".mark",message="of a pod only labels and annotations can be marked: paths must be in /metadata/labels or /metadata/annotations, and there must be no subresource"
// +kubebuilder:validation:XValidation:rule="!has(self.unmark) || (has(self.workload) && !(self.workload.apiVersion == 'v1' && self.workload.kind == 'Pod')) || ((!has(self.unmark.subresource) || size(self.unmark.subresource) == 0) && self.unmark.operations.all(o, o.op == 'test' || o.path.matches('^/metadata/(labels|annotations)(/.*)?$')))",fieldPath=".unmark",message="of a pod only labels and annotations can be marked: paths must be in /metadata/labels or /metadata/annotations, and there must be no subresource"
// +kubebuilder:validation:XValidation:rule="!has(self.workload) || !(self.workload.apiVersion == 'v1' && self.workload.kind in ['Event', 'Namespace', 'Node', 'Secret', 'ServiceAccount']) && !self.workload.apiVersion.matches('^(drawbridge[.]dev|policy|(admissionregistration|authentication|authorization|coordination|events|rbac[.]authorization)[.]k8s[.]io)/')",fieldPath=".workload",message="this kind cannot be a workload: Drawbridge writes it for its own ends"
// +kubebuilder:validation:XValidation:rule="!has(self.migration) || (self.migration.apiVersion.contains('/') && !self.migration.apiVersion.matches('^(drawbridge[.]dev|policy|(admissionregistration|authentication|authorization|coordination|events|rbac[.]authorization)[.]k8s[.]io)/'))",fieldPath=".migration",message="this kind cannot stand for a migration: it is one of Kubernetes' core or of those that Drawbridge writes for its own ends"
type EvacuationPolicySpec struct {
	// interceptor is the name under which Drawbridge acts, a fully qualified domain
	// name. Several policies may share one.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+$')",message="interceptor must be a fully qualified domain name, such as kubevirt.drawbridge.dev"
	// +kubebuilder:validation:XValidation:rule="self != 'imperative-eviction.k8s.io'",message="imperative-eviction.k8s.io is the default interceptor"
	// +kubebuilder:validation:XValidation:rule="!(self in ['surge.drawbridge.dev', 'hook.drawbridge.dev', 'budgets.drawbridge.dev', 'native.drawbridge.dev', 'order.drawbridge.dev'])",message="this name is Drawbridge's own: choose another one, under a domain of yours"
	Interceptor string `json:"interceptor"`

	// priority decides which policy applies if several cover a pod: the one with the
	// highest priority, then the first by name. The others leave the pod alone. The
	// condition Exclusive of each of them reports it.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=-100000
	// +kubebuilder:validation:Maximum=100000
	Priority int32 `json:"priority,omitempty"`

	// pods says which pods the policy covers.
	// +optional
	Pods CoveredPods `json:"pods,omitempty"`

	// workload says how to find the object to evacuate. If unset, it is the pod itself.
	// +optional
	Workload *WorkloadReference `json:"workload,omitempty"`

	// config names the object that expressions see as the variable config, for
	// cluster-wide defaults.
	// +optional
	Config *ConfigReference `json:"config,omitempty"`

	// strategy is an expression of type string: None (evict at once), LiveMigrate
	// (evacuate; refuse the eviction while it cannot migrate), LiveMigrateIfPossible
	// (evacuate if it can migrate, else evict at once) or External (mark it; another
	// controller does the rest). It must not depend on anything that the evacuation
	// itself changes, such as the mark or a condition that differs while a migration
	// runs: if the value becomes None meanwhile, the mark is removed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|true|false|null|[0-9.]+)\\s*$") || self.matches("^\\s*['\"](None|LiveMigrate|LiveMigrateIfPossible|External)['\"]\\s*$")`,message="strategy is constant and none of None, LiveMigrate, LiveMigrateIfPossible and External"
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	Strategy string `json:"strategy"`

	// migratable is an expression of type bool, or null while it is not known yet: then
	// the evacuation waits. If unset, every workload can migrate.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|[0-9.]+)\\s*$")`,message="the expression must be of type bool or null, and it is a constant of another type"
	Migratable string `json:"migratable,omitempty"`

	// wait is an expression of type string: why the evacuation of this pod must not
	// begin yet, for example because the pod is the target of a migration. Empty means
	// that it may begin.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	Wait string `json:"wait,omitempty"`

	// mark tells the platform to evacuate the workload. It is written once, when
	// evacuating is not true.
	// +optional
	Mark *WorkloadPatch `json:"mark,omitempty"`

	// unmark removes the mark when the eviction is no longer wanted or Drawbridge gave
	// up the evacuation.
	// +optional
	Unmark *WorkloadPatch `json:"unmark,omitempty"`

	// cancel asks the platform to remove a mark that only the platform may write. It is
	// called before unmark.
	// +optional
	Cancel *SubresourceCall `json:"cancel,omitempty"`

	// evacuating is an expression of type bool: the workload is marked, on behalf of
	// this pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	Evacuating string `json:"evacuating"`

	// done is an expression of type bool: the workload has left this pod, which may be
	// evicted. If unset, the platform itself ends or deletes the pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	Done string `json:"done,omitempty"`

	// failed is an expression of type bool: the platform has given up.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	Failed string `json:"failed,omitempty"`

	// pointOfNoReturn is an expression of type bool: the evacuation of a marked workload can
	// no longer be undone, so the eviction can no longer be canceled.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	PointOfNoReturn string `json:"pointOfNoReturn,omitempty"`

	// eta is an expression of type timestamp, or string in RFC 3339, or null: when
	// the evacuation is expected to end.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	ETA string `json:"eta,omitempty"`

	// message is an expression of type string: the progress of the evacuation, for
	// people.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	Message string `json:"message,omitempty"`

	// notMigratableText is the answer to a caller if the strategy is LiveMigrate and the
	// workload cannot migrate. It is constant, because callers compare texts.
	// +optional
	// +default="the workload is to be migrated, but it is not migratable"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=160
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\n')",message="notMigratableText must be one line"
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; this text is told as it is"
	NotMigratableText string `json:"notMigratableText,omitempty"`

	// deadline is how long an evacuation may take before it counts as failed. If unset,
	// it may take forever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="deadline must be at least 1m"
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// onFailure says what happens when an evacuation has finally failed: Hold (the pod
	// stays, protected by the guard) or Evict (the next interceptor gets its turn, and
	// in the end the pod is evicted). The default is Hold for the strategies LiveMigrate
	// and External, and Evict for LiveMigrateIfPossible.
	// +optional
	OnFailure OnFailure `json:"onFailure,omitempty"`

	// migration describes the platform's migration objects. With a template, Drawbridge
	// creates them, for platforms without a controller that does. Without a template,
	// Drawbridge only follows those of the platform.
	// +optional
	Migration *MigrationSpec `json:"migration,omitempty"`
}

// OnFailure says what happens when an evacuation has finally failed.
//
// +kubebuilder:validation:Enum=Hold;Evict
type OnFailure string

// What happens when an evacuation has finally failed.
const (
	OnFailureHold  OnFailure = "Hold"
	OnFailureEvict OnFailure = "Evict"
)

// Values of the expression strategy.
const (
	StrategyNone                  = "None"
	StrategyLiveMigrate           = "LiveMigrate"
	StrategyLiveMigrateIfPossible = "LiveMigrateIfPossible"
	StrategyExternal              = "External"
)

// CoveredPods says which pods a policy covers.
type CoveredPods struct {
	// selector selects pods by their labels. If empty or unset, it selects all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// matchConditions are expressions of type bool over the variable pod. All must be
	// true.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`
}

// WorkloadReference says how to find the object behind a pod, in the pod's
// namespace.
type WorkloadReference struct {
	// apiVersion of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is an expression over the variable pod, of type string. If unset, it is the
	// name of the pod's owner of that kind. If the pod has an owner of that kind, the
	// object must have that owner's UID.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Name string `json:"name,omitempty"`
}

// ConfigReference names an object with cluster-wide defaults.
type ConfigReference struct {
	// apiVersion of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace of the object; any if empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the object. If empty, there must be exactly one object. With none or
	// several, config is an empty map.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// WorkloadPatch is a JSON patch (RFC 6902) of the workload. Drawbridge adds a test of
// /metadata/uid before its operations.
type WorkloadPatch struct {
	// subresource is patched instead of the object itself.
	// +optional
	// +kubebuilder:validation:Enum="";status
	// +kubebuilder:validation:MaxLength=63
	Subresource string `json:"subresource,omitempty"`

	// operations of the patch, in order.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Operations []PatchOperation `json:"operations"`
}

// PatchOperation is one operation of a JSON patch.
//
// +kubebuilder:validation:XValidation:rule="(self.op == 'remove') != has(self.value)",message="add, replace and test need a value, remove must have none"
type PatchOperation struct {
	// op is add, replace, remove or test.
	// +required
	// +kubebuilder:validation:Enum=add;replace;remove;test
	// +kubebuilder:validation:MaxLength=7
	Op string `json:"op"`

	// path is a JSON pointer, such as /status/evacuationNodeName.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must be a JSON pointer and begin with /"
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="path is written as it is; write one operation for each path, with its own when"
	Path string `json:"path"`

	// value is an expression of any type.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	Value string `json:"value,omitempty"`

	// when is an expression of type bool. If false, the operation is omitted.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	When string `json:"when,omitempty"`
}

// SubresourceCall is a PUT to a subresource of the workload.
type SubresourceCall struct {
	// apiVersion that serves the subresource, such as subresources.kubevirt.io/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+/[a-z0-9]+$')",message="apiVersion must be GROUP/VERSION"
	// +kubebuilder:validation:XValidation:rule="!(self.split('/')[0] in ['drawbridge.dev', 'admissionregistration.k8s.io', 'authentication.k8s.io', 'authorization.k8s.io', 'coordination.k8s.io', 'events.k8s.io', 'policy', 'rbac.authorization.k8s.io'])",message="Drawbridge writes in this API group for its own ends"
	APIVersion string `json:"apiVersion"`

	// resource is the plural, such as virtualmachineinstances.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]+$')",message="resource must be lower case letters and digits"
	Resource string `json:"resource"`

	// subresource is its path after the name, such as evacuate/cancel.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]+(/[a-z0-9]+)*$')",message="subresource must be lower case words, separated by /"
	Subresource string `json:"subresource"`

	// body is the object to send. A string that consists of "${EXPRESSION}" is replaced
	// by the expression's value.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Body *runtime.RawExtension `json:"body,omitempty"`

	// when is an expression of type bool. If false, the call is omitted.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into migration.template and cancel.body; here write the expression alone"
	// +kubebuilder:validation:XValidation:rule=`!self.matches("^\\s*('[^']*'|\"[^\"]*\"|null|[0-9.]+)\\s*$")`,message="the expression must be of type bool, and it is a constant of another type"
	When string `json:"when,omitempty"`
}
