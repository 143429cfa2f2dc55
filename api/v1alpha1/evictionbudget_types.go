package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// EvictionBudget says how many pods of its namespace may be evicted at a time, and when: by
// groups (zones), at a pace, in windows. It is enforced by turns: the interceptor
// budgets.drawbridge.dev has its turn for each covered pod after all others, and ends it
// when all budgets of the pod grant the eviction. PodDisruptionBudgets still count
// afterwards.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=evb
// +kubebuilder:printcolumn:name="Max-Groups",type=integer,JSONPath=`.spec.maxGroups`,description="How many groups may be disrupted at a time."
// +kubebuilder:printcolumn:name="Max-Unavailable",type=string,JSONPath=`.spec.maxUnavailable`,description="How many pods of a group may be unavailable."
// +kubebuilder:printcolumn:name="Allowed",type=integer,JSONPath=`.status.disruptionsAllowed`,description="How many evictions would be granted now."
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`,description="How many evictions wait."
// +kubebuilder:printcolumn:name="Granting",type=string,JSONPath=`.status.conditions[?(@.type=="Granting")].reason`,description="Why it grants evictions, or not."
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.matchingPods`,description="How many pods it covers."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EvictionBudget struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which pods may be evicted when.
	// +required
	Spec EvictionBudgetSpec `json:"spec"`

	// status is what the controller observed, and what it has granted.
	// +optional
	Status EvictionBudgetStatus `json:"status,omitempty"`
}

// EvictionBudgetList is a list of EvictionBudgets.
//
// +kubebuilder:object:root=true
type EvictionBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EvictionBudget `json:"items"`
}

// EvictionBudgetSpec says which pods may be evicted when.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxGroups) || has(self.groupBy)",message="maxGroups needs groupBy: without it all pods are one group"
// +kubebuilder:validation:XValidation:rule="!has(self.config) || has(self.conditions)",message="config is only read by conditions: give one, or leave config out"
type EvictionBudgetSpec struct {
	// selector selects pods of the budget's namespace by their labels, whoever owns them.
	// An empty one selects all.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator of a matchExpression must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="values of a matchExpression must be given for the operators In and NotIn, and for no others"
	Selector *metav1.LabelSelector `json:"selector"`

	// groupBy puts the pods into groups by a label. Without it all are one group.
	// +optional
	GroupBy *BudgetGroupBy `json:"groupBy,omitempty"`

	// maxGroups is how many groups may have unavailable pods at a time. Default 1, if
	// there is groupBy.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxGroups *int32 `json:"maxGroups,omitempty"`

	// maxUnavailable is how many pods of a group may be unavailable at a time, as a number
	// or as a percentage of those that should run, rounded up. At 0 nothing is evicted
	// until somebody skips the budget.
	// +optional
	// +default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxUnavailable must be a number from 0 to 1000000 or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// settle is how long a pod must have been ready until it counts as available, at most
	// 24h.
	// +optional
	// +default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="settle must be at least 0s and at most 24h"
	Settle *metav1.Duration `json:"settle,omitempty"`

	// minInterval is the time between two evictions, at most 24h. With one, evictions are
	// granted one at a time.
	// +optional
	// +default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="minInterval must be at least 0s and at most 24h"
	MinInterval *metav1.Duration `json:"minInterval,omitempty"`

	// windows are when evictions are granted: while at least one is open. Without any, it
	// is always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []BudgetWindow `json:"windows,omitempty"`

	// outsideWindow says what happens to evictions while no window is open: Wait for the
	// next one, or Continue, as if there was no budget.
	// +optional
	// +default="Wait"
	OutsideWindow OutsideWindow `json:"outsideWindow,omitempty"`

	// config is an object of the namespace that the conditions read. It is watched.
	// +optional
	Config *BudgetConfig `json:"config,omitempty"`

	// conditions are CEL expressions over the variable config, the object that config
	// names; null while it does not exist. All must be true for an eviction to be granted.
	// One that fails counts as false.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Conditions []MatchCondition `json:"conditions,omitempty"`

	// guard says when a PodDisruptionBudget of Drawbridge protects the pods:
	// WhileEvacuating (from the first eviction until the last interceptor), Always
	// (from the pod's start) or Never.
	// +optional
	// +default="WhileEvacuating"
	Guard GuardPolicy `json:"guard,omitempty"`

	// exhausted says what happens to a pod that a PodDisruptionBudget can never let go, such
	// as the only one of a StatefulSet. Without it, the pod waits.
	// +optional
	Exhausted *BudgetExhausted `json:"exhausted,omitempty"`
}

// BudgetGroupBy says which label has the name of a pod's group.
//
// +kubebuilder:validation:XValidation:rule="has(self.podLabel) != has(self.nodeLabel)",message="exactly one of podLabel and nodeLabel must be given"
type BudgetGroupBy struct {
	// podLabel is a label of the pods. Those without it are the group "".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="podLabel must be the key of a label, for example zone or topology.kubernetes.io/zone"
	PodLabel string `json:"podLabel,omitempty"`

	// nodeLabel is a label of the pods' nodes. Pods on nodes without it are the group "".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="nodeLabel must be the key of a label, for example topology.kubernetes.io/zone"
	NodeLabel string `json:"nodeLabel,omitempty"`
}

// BudgetWindow is a time that comes again.
type BudgetWindow struct {
	// schedule is when it opens, in cron's format: minute, hour, day of the month, month
	// and day of the week.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Schedule string `json:"schedule"`

	// duration is how long it is open, at least 1m and at most 168h.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be at least 1m and at most 168h"
	Duration metav1.Duration `json:"duration"`

	// timeZone of the schedule, by its name in the IANA database, for example
	// Europe/Berlin. Default: UTC.
	// +optional
	// +default="UTC"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$') && self != 'Local'",message="timeZone must be a name of the IANA database, for example Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`
}

// OutsideWindow says what happens to evictions while no window is open.
//
// +kubebuilder:validation:Enum=Wait;Continue
type OutsideWindow string

// What happens outside of the windows.
const (
	// OutsideWindowWait waits for the next window.
	OutsideWindowWait OutsideWindow = "Wait"
	// OutsideWindowContinue lets evictions proceed as if there were no budget.
	OutsideWindowContinue OutsideWindow = "Continue"
)

// BudgetConfig names an object of the namespace.
type BudgetConfig struct {
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

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// EvictionBudgetStatus is what the controller observed, and what it has granted.
type EvictionBudgetStatus struct {
	// observedGeneration is the metadata.generation that the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// matchingPods is how many pods the budget covers.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MatchingPods *int32 `json:"matchingPods,omitempty"`

	// disruptionsAllowed is how many evictions of available pods would be granted now.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DisruptionsAllowed *int32 `json:"disruptionsAllowed,omitempty"`

	// waiting is how many evictions wait for a grant.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Waiting *int32 `json:"waiting,omitempty"`

	// groups are the groups of pods, those with unavailable pods first, at most 50.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Groups []BudgetGroup `json:"groups,omitempty"`

	// grants are the evictions that were granted, until the pods' places are filled again.
	// Each is recorded here before anybody may act upon it.
	// +optional
	// +listType=map
	// +listMapKey=podUID
	// +kubebuilder:validation:MaxItems=256
	Grants []BudgetGrant `json:"grants,omitempty"`

	// lastGrantTime is when the last eviction was granted.
	// +optional
	LastGrantTime *metav1.Time `json:"lastGrantTime,omitempty"`

	// window is the one that is open, else the next one. It is unset without windows.
	// +optional
	Window *BudgetOpening `json:"window,omitempty"`

	// conditions are Accepted (the spec is well formed; with False nothing is granted),
	// Granting (False while evictions wait and none is granted, and why), Covers (True
	// while there are pods that it covers) and, if spec.exhausted says Evict, Exhausted (False
	// if Drawbridge must not delete pods, which wait then).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime > timestamp('1970-01-01T00:00:00Z') && c.lastTransitionTime < timestamp('9999-12-31T00:00:00Z'))",message="lastTransitionTime must be a time of this epoch in RFC 3339"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BudgetGroup is the state of a group.
type BudgetGroup struct {
	// name is the value of the label; empty for the pods without it, and without groupBy.
	// A pod that is missing and whose group nobody knows is in the group "?".
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// expected is how many pods should run.
	// +required
	// +kubebuilder:validation:Minimum=0
	Expected int32 `json:"expected"`

	// available is how many are ready, settled and not granted.
	// +required
	// +kubebuilder:validation:Minimum=0
	Available int32 `json:"available"`

	// disrupted is how many are not available, or missing.
	// +required
	// +kubebuilder:validation:Minimum=0
	Disrupted int32 `json:"disrupted"`

	// waiting is how many wait for a grant.
	// +required
	// +kubebuilder:validation:Minimum=0
	Waiting int32 `json:"waiting"`
}

// BudgetInterceptor is the interceptor of all EvictionBudgets.
const BudgetInterceptor = "budgets.drawbridge.dev"

// BudgetPriority is its priority: it runs after others, so that what was granted is evicted
// soon.
const BudgetPriority int32 = 500

// Types and reasons of the conditions of an EvictionBudget, beside those of an
// EvacuationHook.
const (
	// ConditionGranting is False while evictions wait and none is granted.
	ConditionGranting = "Granting"

	// ReasonInvalidWindow: a schedule or time zone cannot be read, or never comes.
	ReasonInvalidWindow = "InvalidWindow"
	// ReasonGranting: evictions are granted, as far as there are any.
	ReasonGranting = "Granting"
	// ReasonNotAccepted: the spec is not well formed.
	ReasonNotAccepted = "NotAccepted"
	// ReasonOutsideWindow: no window is open.
	ReasonOutsideWindow = "OutsideWindow"
	// ReasonConditionFalse: one of the conditions is not true.
	ReasonConditionFalse = "ConditionFalse"
	// ReasonMinInterval: the last eviction was granted less than minInterval ago.
	ReasonMinInterval = "MinInterval"
	// ReasonGroupsDisrupted: other groups have unavailable pods.
	ReasonGroupsDisrupted = "GroupsDisrupted"
	// ReasonPodsUnavailable: too many pods of the group are unavailable.
	ReasonPodsUnavailable = "PodsUnavailable"
	// ReasonNothingAllowed: maxUnavailable is 0.
	ReasonNothingAllowed = "NothingAllowed"
	// ReasonGrantsFull: as many evictions are granted as are recorded at a time.
	ReasonGrantsFull = "GrantsFull"
	// ReasonTurnOfOthers: evictions of other groups have waited longer.
	ReasonTurnOfOthers = "TurnOfOthers"
)
