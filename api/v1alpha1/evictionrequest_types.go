package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EvictionRequest asks for the graceful eviction of a target.
//
// spec.requesters lists the requesters. The request is canceled when the list becomes
// empty. The interceptors of status.targetInterceptors get their turn in order. The one
// named in status.activeInterceptors reports in its item of status.interceptors. An
// interceptor that does not report within the heartbeat deadline (20 minutes by default)
// is passed over, and all are that a requester's deadline leaves no time. The last one, imperative-eviction.k8s.io, evicts the pod through its
// eviction subresource.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=er
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.target.pod.name`,description="The pod to evict."
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,description="The node the pod ran on."
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.summary.state`,description="How far the request is."
// +kubebuilder:printcolumn:name="Interceptor",type=string,JSONPath=`.status.summary.interceptor`,description="Whose turn it is, and the how manieth of how many it is."
// +kubebuilder:printcolumn:name="Budget",type=string,JSONPath=`.status.summary.budget`,description="The PodDisruptionBudget that refuses the eviction."
// +kubebuilder:printcolumn:name="ETA",type=string,JSONPath=`.status.summary.expectedFinishTime`,description="When the active interceptor expects to be done."
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=`.status.deadline`,description="When the interceptors have to be done."
// +kubebuilder:printcolumn:name="Requesters",type=integer,JSONPath=`.status.summary.requesters`,description="How many want the eviction."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.metadata.generateName)",message="metadata.generateName is not supported: set metadata.name to the UID of the pod instead"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.spec.target.pod) || self.metadata.name == self.spec.target.pod.uid",optionalOldSelf=true,message="metadata.name must be equal to spec.target.pod.uid: there is one request per pod, and the pod's UID is its name"
// +kubebuilder:validation:XValidation:rule="size(oldSelf.spec.?requesters.orValue([])) > 0 || size(self.spec.?requesters.orValue([])) == 0 || (has(self.status) && has(self.status.interceptors) && self.status.interceptors.exists(i, has(i.cancellation) && i.cancellation == 'Forbidden'))",fieldPath=".spec.requesters",message="requesters was empty, so this request is canceled for good: delete it and create a new one"
// +kubebuilder:validation:XValidation:rule="has(self.status) || !has(oldSelf.status)",message="status cannot be removed: send the stored status with your changes"
type EvictionRequest struct {
	metav1.TypeMeta `json:",inline"`

	// metadata.name must equal spec.target.pod.uid. metadata.generateName is not
	// supported. The target's labels are copied here. If both have a label, the target's
	// value wins.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to evict and who requests it.
	// +required
	Spec EvictionRequestSpec `json:"spec"`

	// status is what the controller and the interceptors last reported.
	// +optional
	Status EvictionRequestStatus `json:"status,omitempty"`
}

// EvictionRequestList is a list of EvictionRequests.
//
// +kubebuilder:object:root=true
type EvictionRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EvictionRequest `json:"items"`
}

// EvictionRequestSpec says what to evict and who requests it.
//
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || (has(self.requesters) && size(self.requesters) > 0)",optionalOldSelf=true,fieldPath=".requesters",reason=FieldValueRequired,message="requesters must have at least one item when a request is created: add your own name"
type EvictionRequestSpec struct {
	// target is the object to evict. Immutable.
	// +required
	Target EvictionTarget `json:"target"`

	// requesters want the eviction. A request needs at least one when it is created. An
	// empty list cancels the request permanently, unless an interceptor has forbidden that.
	// Each requester owns its own entry and
	// writes it with server-side apply.
	//
	// The default is for server-side apply, too: if a list was written as a whole by
	// another owner, removing its last item leaves null, which the default replaces.
	// +optional
	// +default=[]
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Requesters []Requester `json:"requesters,omitempty"`
}

// EvictionTarget refers to the object to evict. Exactly one member is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.pod)",fieldPath=".pod",reason=FieldValueRequired,message="pod must be set: it is the only kind of target there is"
type EvictionTarget struct {
	// pod is a pod of the request's namespace. Immutable.
	// +optional
	Pod *LocalPodReference `json:"pod,omitempty"`
}

// LocalPodReference identifies one incarnation of a pod of the same namespace.
type LocalPodReference struct {
	// name of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a pod: lower-case letters, digits, hyphens and periods"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="target is immutable: create another request, named by the UID of the other pod"
	Name string `json:"name"`

	// uid of the pod.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="target is immutable: create another request, named by the UID of the other pod"
	UID types.UID `json:"uid"`
}

// Interceptor refers to an interceptor.
//
// +structType=atomic
type Interceptor struct {
	// name is the interceptor's fully qualified domain name, at most 253
	// lower-case letters, digits, periods and hyphens. Unique in the list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$')",message="name must be a fully qualified domain name: at least two labels of lower-case letters, digits and hyphens, each at most 63 characters, separated by periods, without one at the end (for example foo.example.com)"
	Name string `json:"name"`

	// heartbeatDeadline is how long it may be silent, if its EvictionInterceptor said so
	// when the request was planned. If unset, it is that of the installation.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('2m') && duration(self) <= duration('24h')",message="heartbeatDeadline must be at least 2m and at most 24h: send that of the EvictionInterceptor"
	HeartbeatDeadline *metav1.Duration `json:"heartbeatDeadline,omitempty"`

	// minimum is how long it needs at least, if its EvictionInterceptor or EvacuationHook
	// said so when the request was planned. If unset, it takes what it gets.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="minimum must be at least 1s and at most 24h: send that of the registration"
	Minimum *metav1.Duration `json:"minimum,omitempty"`

	// onShortNotice says what happens if the deadline leaves less than minimum when its turn
	// comes: Begin, the default, or Skip. Who is skipped gets no turn, and is in
	// processedInterceptors.
	// +optional
	OnShortNotice ShortNoticePolicy `json:"onShortNotice,omitempty"`

	// onNodeLost says what happens while the node is lost (condition drawbridge.dev/NodeLost):
	// Wait, the default, Skip or Interrupt. Who is passed over because of it is in
	// processedInterceptors.
	// +optional
	OnNodeLost NodeLostPolicy `json:"onNodeLost,omitempty"`
}

// EvictionRequestStatus is what the controller and the interceptors last reported. The
// controller writes all of it except the items of interceptors.
//
// The rules below protect the sequence, no matter who writes. Lists are compared through
// map() or filter(), because == ignores the order of a listType map or set.
//
// They read a field once where they can, and what is about one field is a rule of that field:
// each time an API server reads a field in a rule, it copies the schemas of all fields beside
// it (Properties of k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model).
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.conditions) || oldSelf.conditions.all(c, !(c.type in ['Evicted', 'Canceled']) || c.status != 'True' || (has(self.conditions) && self.conditions.exists(d, d.type == c.type && d.status == 'True')))",fieldPath=".conditions",message="conditions Evicted and Canceled are final once True: they cannot be reverted or removed"
// +kubebuilder:validation:XValidation:rule="has(self.targetInterceptors) || !has(oldSelf.targetInterceptors)",fieldPath=".targetInterceptors",message="targetInterceptors is immutable once set: send the stored list"
// +kubebuilder:validation:XValidation:rule="!has(self.activeInterceptors) || self.activeInterceptors.all(a, self.?targetInterceptors[?(has(self.processedInterceptors) ? size(self.processedInterceptors) : 0)].optMap(t, t.name == a).orValue(false))",fieldPath=".activeInterceptors",message="activeInterceptors may only have the item of targetInterceptors that follows the processed ones: the first one in the beginning, then always the next higher index"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.activeInterceptors) || oldSelf.activeInterceptors.all(n, self.?activeInterceptors[?0].orValue('none') == n || (has(self.processedInterceptors) && n in self.processedInterceptors))",fieldPath=".processedInterceptors",message="processedInterceptors must get the name that leaves activeInterceptors, in the same write"
// +kubebuilder:validation:XValidation:rule="!has(self.processedInterceptors) || [oldSelf.hasValue() && has(oldSelf.value().processedInterceptors) ? oldSelf.value().processedInterceptors : []].all(before, self.processedInterceptors.all(n, n in before || oldSelf.?activeInterceptors[?0].orValue('none') == n || (has(self.targetInterceptors) && self.targetInterceptors.exists(t, t.name == n && ((has(t.onShortNotice) && t.onShortNotice == 'Skip' && has(self.deadline)) || (has(t.onNodeLost) && t.onNodeLost != 'Wait' && has(self.conditions) && self.conditions.exists(c, c.type == 'drawbridge.dev/NodeLost' && c.status == 'True'))))))) || (has(self.deadline) && has(self.activeInterceptors) && self.activeInterceptors.exists(a, a in ['imperative-eviction.k8s.io', 'budgets.drawbridge.dev', 'native.drawbridge.dev']))",optionalOldSelf=true,fieldPath=".processedInterceptors",message="processedInterceptors may only get the name that was in activeInterceptors until now, unless a deadline passes the rest over, or is too soon for one that is skipped then, or the node is lost"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.processedInterceptors) || sets.contains(has(self.processedInterceptors) ? self.processedInterceptors : [], oldSelf.processedInterceptors)",fieldPath=".processedInterceptors",message="processedInterceptors never loses a name: send the stored ones too"
// +kubebuilder:validation:XValidation:rule="!has(self.processedInterceptors) || [self.processedInterceptors].all(p, size(p) == 0 || (has(self.targetInterceptors) && self.targetInterceptors.map(t, t.name).filter(n, n in p) == p.map(n, n)))",fieldPath=".processedInterceptors",message="processedInterceptors must be names of targetInterceptors, in the order of targetInterceptors"
// +kubebuilder:validation:XValidation:rule="oldSelf.?interceptors.optMap(before, size(self.?interceptors.orValue([])) == size(before)).orValue(sets.equivalent(has(self.targetInterceptors) ? self.targetInterceptors.map(t, t.name) : [], has(self.interceptors) ? self.interceptors.map(i, i.name) : []))",optionalOldSelf=true,fieldPath=".interceptors",message="interceptors must have exactly one item for each name of targetInterceptors, from the same write on"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.interceptors) || !has(self.interceptors) || [oldSelf.?activeInterceptors[?0].orValue('none')].all(active, self.interceptors.filter(i, i.name != active) == oldSelf.interceptors.filter(i, i.name != active) || self.interceptors.all(i, i.name == active || i in oldSelf.interceptors))",fieldPath=".interceptors",message="interceptors: only the item of the active interceptor may change"
type EvictionRequestStatus struct {
	// observedGeneration is the metadata.generation that the controller last acted on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="observedGeneration cannot decrease: read the request again before you write"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions of the request. Evicted: the target has ended. Canceled: the request is
	// no longer processed. At most one of them is True, and it stays True. Only the
	// controller writes these two and those whose type begins with drawbridge.dev/. Others
	// may add up to 24 conditions in total.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="size(self) <= 24 || self.filter(c, !(c.type in ['Evicted', 'Canceled', 'Deleting'] || c.type.startsWith('drawbridge.dev/'))).size() <= 24",message="conditions may have at most 24 items besides those of the controller: remove some of your own"
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self.filter(c, c.type in ['Evicted', 'Canceled'] && c.status == 'True').size() < 2",message="conditions Evicted and Canceled cannot both be True"
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.message) <= 4096)",message="a condition's message may have at most 4096 characters: shorten it"
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime > timestamp('1970-01-01T00:00:00Z') && c.lastTransitionTime < timestamp('9999-12-31T00:00:00Z'))",message="lastTransitionTime must be a time of this epoch in RFC 3339"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodeName is the node the target ran on when the controller first saw it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// targetInterceptors are the interceptors of the target in the order in which
	// they run, imperative-eviction.k8s.io last. Set once, then immutable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(t, t) == oldSelf.map(t, t)",message="targetInterceptors is immutable once set: send the stored list"
	TargetInterceptors []Interceptor `json:"targetInterceptors,omitempty"`

	// activeInterceptors has the name of the interceptor whose turn it is, if any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1
	// +kubebuilder:validation:items:MaxLength=253
	ActiveInterceptors []string `json:"activeInterceptors,omitempty"`

	// activationTime is when the active interceptor got its turn. Its heartbeat deadline
	// starts then.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	ActivationTime *metav1.Time `json:"activationTime,omitempty"`

	// deadline is when the interceptors have to be done: the earliest deadline of
	// spec.requesters, and of those that are learnt from the API (deadlines), less the
	// pod's termination grace period (the longest that is asked for) and less a margin
	// (deadlines.margin, 5 seconds by default). A requester of type Hard, and a deadline
	// that is over when it is first seen, leave deadlines.hardNotice, 10 seconds by default,
	// from then on. At the deadline the active
	// interceptor is interrupted, those behind it get no turn, and
	// imperative-eviction.k8s.io begins, from when on the deadline stays as it is. Budgets
	// still count, and native responders know no deadlines: budgets.drawbridge.dev and
	// native.drawbridge.dev keep their turns, or get them. If unset, there is no deadline.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// deadlineSource says where the deadline comes from: a requester, or what stands in the
	// API about the node or the caller, for example "NodeClaim default-7x2k4".
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	DeadlineSource string `json:"deadlineSource,omitempty"`

	// processedInterceptors are no longer active, because they completed, missed the
	// heartbeat deadline or the deadline, or the request ended.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	ProcessedInterceptors []string `json:"processedInterceptors,omitempty"`

	// interceptors has the report of each interceptor, with the same names as
	// targetInterceptors. Only the active one changes. Each interceptor writes only its
	// own item.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Interceptors []InterceptorStatus `json:"interceptors,omitempty"`

	// summary is what tables show. The controller updates it together with the rest of the
	// status.
	// +optional
	Summary *EvictionRequestSummary `json:"summary,omitempty"`
}

// RequestState is the progress of a request in one word.
//
// +kubebuilder:validation:Enum=Pending;Intercepting;Evicting;Blocked;Deleting;Evicted;Canceled
type RequestState string

// EvictionRequestSummary is what tables show: the rest of the status (and the number of
// requesters) in a ready-made form. No decision depends on it.
type EvictionRequestSummary struct {
	// state in one word. Pending: no interceptor is active. Intercepting: one of the
	// target's own interceptors is active. Evicting: imperative-eviction.k8s.io is active.
	// Blocked: it is active, and the eviction has been refused so far; budget names the
	// budgets, if they are the reason. Deleting: the request is being deleted, and a
	// finalizer holds it. Evicted, Canceled: the condition of that name is True.
	// +required
	State RequestState `json:"state"`

	// interceptor is the active interceptor and its position in the sequence, for example
	// "surge.drawbridge.dev 1/2". Empty if none is active.
	// +optional
	// +kubebuilder:validation:MaxLength=260
	Interceptor string `json:"interceptor,omitempty"`

	// budget names the PodDisruptionBudgets that refuse the eviction, if any, separated by
	// commas.
	// +optional
	// +kubebuilder:validation:MaxLength=1300
	Budget string `json:"budget,omitempty"`

	// expectedFinishTime is the one that the active interceptor reported, if any.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	ExpectedFinishTime *metav1.Time `json:"expectedFinishTime,omitempty"`

	// requesters is the number of spec.requesters.
	// +required
	// +kubebuilder:validation:Minimum=0
	Requesters int32 `json:"requesters"`
}

// EvictionRefusal is why a call of a pod's eviction subresource failed.
type EvictionRefusal struct {
	// reason is the class of the answer in one word, the same as in the event, for
	// example EvictionBlocked: a budget allows no disruption now.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`

	// budgets names the PodDisruptionBudgets that select the pod, if they refuse the
	// eviction: sorted, and only the first five.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=253
	Budgets []string `json:"budgets,omitempty"`

	// message explains the answer, and quotes it.
	// +required
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message"`
}

// CancellationPolicy says whether a request can still be canceled.
type CancellationPolicy string

// Values of CancellationPolicy.
const (
	CancellationAllowed   CancellationPolicy = "Allowed"
	CancellationForbidden CancellationPolicy = "Forbidden"
)

// InterceptorStatus is the report of one interceptor.
//
// +kubebuilder:validation:XValidation:rule="!has(self.heartbeatTime) || has(self.startTime)",fieldPath=".startTime",message="startTime must be set together with the first heartbeatTime"
// +kubebuilder:validation:XValidation:rule="!has(self.startTime) || has(self.heartbeatTime)",fieldPath=".heartbeatTime",message="heartbeatTime must be set together with startTime"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.completionTime) || has(self.completionTime)",fieldPath=".completionTime",message="completionTime is immutable once set"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.heartbeatTime) || has(self.heartbeatTime)",fieldPath=".heartbeatTime",message="heartbeatTime cannot be unset"
// +kubebuilder:validation:XValidation:rule="oldSelf.?cancellation.orValue('Allowed') != 'Forbidden' || self.?cancellation.orValue('Allowed') == 'Forbidden'",fieldPath=".cancellation",message="cancellation cannot be taken back once it is Forbidden: send it with each report"
// +kubebuilder:validation:XValidation:rule="!has(self.skippedBy) || has(self.completionTime)",fieldPath=".skippedBy",message="skippedBy must be set together with completionTime: skipping an interceptor completes it in its place"
// +kubebuilder:validation:XValidation:rule="has(self.skippedBy) ? has(oldSelf.skippedBy) || !has(oldSelf.completionTime) : !has(oldSelf.skippedBy)",fieldPath=".skippedBy",message="skippedBy is set in the write that sets completionTime, and immutable then"
type InterceptorStatus struct {
	// name of the interceptor. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$')",message="name must be a fully qualified domain name: at least two labels of lower-case letters, digits and hyphens, each at most 63 characters, separated by periods, without one at the end (for example foo.example.com)"
	Name string `json:"name"`

	// startTime is when the interceptor started, within the clock skew (10 s) of now. Set
	// once, together with the first heartbeatTime.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="startTime is immutable once set"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// heartbeatTime is when the interceptor last reported. It is not in the future (beyond
	// the clock skew), never decreases, and is at least 60 s after the previous one.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="heartbeatTime cannot be earlier than the stored one"
	// +kubebuilder:validation:XValidation:rule="self <= oldSelf || self - oldSelf >= duration('60s')",message="heartbeatTime must be at least 60 seconds after the stored one: wait, or leave it as it is"
	HeartbeatTime *metav1.Time `json:"heartbeatTime,omitempty"`

	// expectedFinishTime is when the interceptor expects to finish. It is not in the past
	// when set, and may change.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	ExpectedFinishTime *metav1.Time `json:"expectedFinishTime,omitempty"`

	// completionTime is when the interceptor finished, fully or partially, or declined,
	// within the clock skew of now. Set once. It ends the interceptor's turn.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="completionTime is immutable once set"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// retries is the number of failed calls of the pod's eviction subresource. Only
	// imperative-eviction.k8s.io sets it. In the KEP, this number is only in the message,
	// which nobody should have to parse.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retries int32 `json:"retries,omitempty"`

	// refusal is why the last call of the pod's eviction subresource failed. Only
	// imperative-eviction.k8s.io sets it: its message is the KEP's sentence, which does
	// not include the cause. It is removed when the eviction is accepted.
	// +optional
	Refusal *EvictionRefusal `json:"refusal,omitempty"`

	// skippedBy is the user name of the person who ended the interceptor's turn. The
	// message says why. Set together with completionTime. It requires the verb skip on
	// evictionrequests, and users can only set their own name. The interceptor may still
	// be working.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="skippedBy is set in the write that sets completionTime, and immutable then"
	SkippedBy string `json:"skippedBy,omitempty"`

	// cancellation says whether what the interceptor has begun can be undone. Once it is
	// Forbidden, the request continues to its end, even if its last requester leaves, and
	// takes new ones. It cannot be taken back. The default is Allowed.
	// +optional
	// +kubebuilder:validation:Enum=Allowed;Forbidden
	Cancellation CancellationPolicy `json:"cancellation,omitempty"`

	// message describes the interceptor's progress. It may be empty, and is if a report
	// leaves it out. Writers cut it at 4000 characters.
	// +required
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message"`
}
