package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EvictionInterceptor registers an interceptor for the pods it selects, without
// changing the pods. KEP-4563 defers such registration by selector to a later version.
// The alternative is the pod annotation drawbridge.dev/interceptors.
//
// metadata.name is the interceptor's name, a fully qualified domain name. Names under
// k8s.io and kubernetes.io are reserved and only accepted if the administrator allows
// them. A pod is intercepted if podSelector, namespaceSelector and all matchConditions
// match. Changing or removing a registration affects only evictions that begin
// afterwards: the plan of an EvictionRequest is made once.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ei
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,description="Interceptors of higher priority run first."
// +kubebuilder:printcolumn:name="Guard",type=string,JSONPath=`.spec.guard`,description="When a budget protects the pods."
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the registration is in force."
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.matchingPods`,description="How many pods it intercepts."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$')",message="metadata.name must be a fully qualified domain name: at least two labels of lower-case letters, digits and hyphens, each at most 63 characters, separated by periods, without one at the end (for example foo.example.com)"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'imperative-eviction.k8s.io'",message="metadata.name must not be imperative-eviction.k8s.io: it always comes last by itself"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.endsWith('.order.drawbridge.dev') || (has(self.spec) && has(self.spec.after))",message="a registration whose name ends in .order.drawbridge.dev needs spec.after: it has no interceptor of its own, and only gives an order"
type EvictionInterceptor struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which pods are intercepted, when, and by whom.
	// +optional
	Spec EvictionInterceptorSpec `json:"spec,omitempty"`

	// status is what the controller observed.
	// +optional
	Status EvictionInterceptorStatus `json:"status,omitempty"`
}

// EvictionInterceptorList is a list of EvictionInterceptors.
//
// +kubebuilder:object:root=true
type EvictionInterceptorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EvictionInterceptor `json:"items"`
}

// EvictionInterceptorSpec says which pods are intercepted, when, and by whom.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onShortNotice) || has(self.minimum)",fieldPath=".onShortNotice",message="onShortNotice needs a minimum: say how long it needs, too"
type EvictionInterceptorSpec struct {
	// podSelector selects pods by their labels. If empty or unset, it selects all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator of a matchExpression must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="values of a matchExpression must be given for the operators In and NotIn, and for no others"
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespaceSelector selects namespaces by their labels. If empty or unset, it
	// selects all. kube-system and Drawbridge's own namespace are never intercepted by
	// a registration.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator of a matchExpression must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="values of a matchExpression must be given for the operators In and NotIn, and for no others"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// matchConditions are CEL expressions over the pod. All must be true. The pod is
	// the variable object, with metadata, some of spec (nodeName, priority,
	// priorityClassName, serviceAccountName, schedulerName, restartPolicy,
	// terminationGracePeriodSeconds, schedulingGroup, evictionResponders and the kinds of
	// volumes) and of status (phase and conditions), and its namespace is the variable
	// namespaceObject, with name, labels and annotations. An expression that fails counts as
	// false and is reported in the condition Evaluated.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// priority orders the interceptors of a pod: the highest runs first, equal ones are
	// ordered by name. Names in the pod's annotation have priority 10000 and keep their
	// order; a registration of priority 10000 comes before the first of them whose name
	// is greater. An interceptor that is registered and in the annotation keeps its
	// place in the annotation. If there are more than 15, the last ones are dropped.
	// +optional
	// +default=10000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Priority *int32 `json:"priority,omitempty"`

	// serviceAccounts act under this name. If there is at least one, only they (and
	// Drawbridge) may write the interceptor's part of an EvictionRequest's status.
	// Their calls of pods/eviction are admitted while the interceptor is active for the
	// pod; the pod's budgets still apply.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ServiceAccounts []ServiceAccountReference `json:"serviceAccounts,omitempty"`

	// evicts says that the interceptor terminates the pod itself.
	// +optional
	Evicts bool `json:"evicts,omitempty"`

	// heartbeatDeadline is how long the interceptor may be silent until the next one gets
	// its turn: at least 2m, as heartbeats may come once a minute, and at most 24h. If
	// unset, it is that of the installation (20m by default). An EvictionRequest keeps the
	// one that was in force when it was planned.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('2m') && duration(self) <= duration('24h')",message="heartbeatDeadline must be at least 2m, as heartbeats may come once a minute, and at most 24h"
	HeartbeatDeadline *metav1.Duration `json:"heartbeatDeadline,omitempty"`

	// minimum is how long the interceptor needs at least for a pod, from 1s to 24h. If a deadline
	// leaves it less when its turn comes, the event ShortNotice says so, and onShortNotice
	// decides. If unset, it takes what it gets. An EvictionRequest keeps the one that was in
	// force when it was planned.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="minimum must be at least 1s and at most 24h"
	Minimum *metav1.Duration `json:"minimum,omitempty"`

	// onShortNotice says what happens if a deadline leaves less than minimum: Begin, the
	// default, lets the interceptor do what it can until then; Skip passes it over at once.
	// +optional
	OnShortNotice ShortNoticePolicy `json:"onShortNotice,omitempty"`

	// onNodeLost says what happens while the pod's node is lost: its condition Ready has not
	// been True for a minute, it has the taint node.kubernetes.io/out-of-service, or there is
	// no such Node any more. Wait, the default, changes nothing. Skip: the interceptor gets no
	// turn, but one that it has continues, until it is done or the heartbeat deadline has passed.
	// Interrupt: it gets no turn, and one that it has ends at once. Who was passed over stays
	// so if the node comes back. An EvictionRequest keeps the one that was in force when it
	// was planned.
	// +optional
	OnNodeLost NodeLostPolicy `json:"onNodeLost,omitempty"`

	// nativeKey says that the interceptor is also a responder of Kubernetes' own API
	// (lifecycle.k8s.io), under this key. While Drawbridge takes part in that API, pods that
	// name the key in spec.evictionResponders do not have this interceptor: their turn is the
	// native one.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 253",message="nativeKey must be a domain, '/' and at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit (for example db.example.com/checkpoint)"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(k8s|kubernetes)[.]io/') && self != 'drawbridge.dev/interceptors'",message="nativeKey must not be drawbridge.dev/interceptors, and no key under k8s.io or kubernetes.io: these belong to Drawbridge and to Kubernetes"
	NativeKey string `json:"nativeKey,omitempty"`

	// after selects pods of the same node that are to leave first. While any of them leaves
	// (its eviction is requested, it is being deleted, or the node is drained), neither this
	// interceptor nor a later one has its turn: order.drawbridge.dev has it, right before the
	// first of the pod's interceptors that has an after. Pods that wait for each other, in a
	// circle, do not wait. A registration whose name ends in .order.drawbridge.dev has no
	// interceptor of its own, and only gives the order.
	// +optional
	After *EvictionOrder `json:"after,omitempty"`

	// guard says when a PodDisruptionBudget of Drawbridge protects the pods:
	// WhileEvacuating (from the first eviction until the last interceptor), Always
	// (from the pod's start) or Never.
	// +optional
	// +default="WhileEvacuating"
	Guard GuardPolicy `json:"guard,omitempty"`
}

// ShortNoticePolicy says what an interceptor does that a deadline leaves less than its
// minimum.
//
// +kubebuilder:validation:Enum=Begin;Skip
type ShortNoticePolicy string

// Policies for short notice.
const (
	// ShortNoticeBegin begins nevertheless, and is cut off at the deadline.
	ShortNoticeBegin ShortNoticePolicy = "Begin"
	// ShortNoticeSkip gets no turn.
	ShortNoticeSkip ShortNoticePolicy = "Skip"
)

// NodeLostPolicy says what happens to an interceptor's turn while the pod's node is lost.
//
// +kubebuilder:validation:Enum=Wait;Skip;Interrupt
type NodeLostPolicy string

// Policies for a lost node.
const (
	// NodeLostWait gets and keeps its turn as on any node.
	NodeLostWait NodeLostPolicy = "Wait"
	// NodeLostSkip gets no turn while the node is lost. A turn that has begun continues.
	NodeLostSkip NodeLostPolicy = "Skip"
	// NodeLostInterrupt gets no turn while the node is lost, and a turn that has begun ends.
	NodeLostInterrupt NodeLostPolicy = "Interrupt"
)

// GuardPolicy says when a pod is protected by a budget.
//
// +kubebuilder:validation:Enum=WhileEvacuating;Always;Never
type GuardPolicy string

// Policies of the guard.
const (
	// GuardWhileEvacuating protects from the first eviction until the imperative
	// stage.
	GuardWhileEvacuating GuardPolicy = "WhileEvacuating"
	// GuardAlways protects from the pod's start.
	GuardAlways GuardPolicy = "Always"
	// GuardNever does not protect.
	GuardNever GuardPolicy = "Never"
)

// MatchCondition is a CEL expression with a name, as in a
// ValidatingAdmissionPolicy.
type MatchCondition struct {
	// name of the condition, unique in the list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="name must be a qualified name: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, after an optional domain and '/' (for example example.com/is-database)"
	Name string `json:"name"`

	// expression in CEL, of type bool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`
}

// ServiceAccountReference names a service account.
type ServiceAccountReference struct {
	// namespace of the account.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="namespace must be the name of a namespace: lower-case letters, digits and hyphens"
	Namespace string `json:"namespace"`

	// name of the account.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a service account: lower-case letters, digits, hyphens and periods"
	Name string `json:"name"`
}

// EvictionInterceptorStatus is what the controller observed.
type EvictionInterceptorStatus struct {
	// observedGeneration is the metadata.generation that the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// matchingPods is how many pods the registration selects. It lags behind by a few
	// seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MatchingPods *int32 `json:"matchingPods,omitempty"`

	// conditions are Accepted (selectors and expressions are well formed; a
	// registration that is not accepted selects nothing) and Evaluated (False while
	// an expression fails for a pod).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime > timestamp('1970-01-01T00:00:00Z') && c.lastTransitionTime < timestamp('9999-12-31T00:00:00Z'))",message="lastTransitionTime must be a time of this epoch in RFC 3339"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Types and reasons of the conditions of an EvictionInterceptor.
const (
	// ConditionAccepted is True when the registration is in force.
	ConditionAccepted = "Accepted"
	// ConditionEvaluated is False while a matchCondition fails at run time for at
	// least one pod.
	ConditionEvaluated = "Evaluated"

	// ReasonAccepted: selectors and expressions are well formed.
	ReasonAccepted = "Accepted"
	// ReasonInvalidSelector: a selector cannot be read.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonInvalidExpression: a matchCondition does not compile, or may cost too
	// much.
	ReasonInvalidExpression = "InvalidExpression"
	// ReasonReservedName: metadata.name belongs to Kubernetes (ruling R14).
	ReasonReservedName = "ReservedName"
	// ReasonOrderCircle: the pods of the registration would wait for each other, by spec.after.
	ReasonOrderCircle = "OrderCircle"
	// ReasonEvaluated: no expression failed.
	ReasonEvaluated = "Evaluated"
	// ReasonEvaluationFailed: an expression failed for a pod.
	ReasonEvaluationFailed = "EvaluationFailed"
)

// DefaultInterceptorPriority is the priority of a registration that gives none,
// and of the names in a pod's annotation.
const DefaultInterceptorPriority int32 = 10000
