package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// EvacuationHook is an interceptor without code: for pods of its own namespace, do this
// before they are evicted. It acts under the name NAME.NAMESPACE.hooks.drawbridge.dev.
//
// Whoever writes one needs, in that namespace, what it does: create jobs for a job,
// create pods/exec for an exec, get secrets for an http with a Secret.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=eh
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,description="Interceptors of higher priority run first."
// +kubebuilder:printcolumn:name="On-Failure",type=string,JSONPath=`.spec.onFailure`,description="What happens to a pod for which it failed."
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the hook is well formed."
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.matchingPods`,description="How many pods it covers."
// +kubebuilder:printcolumn:name="Last-Run",type=string,JSONPath=`.status.conditions[?(@.type=="LastRun")].reason`,description="How the last run ended."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: it is a part of the interceptor's name"
type EvacuationHook struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says for which pods something is done first, and what.
	// +required
	Spec EvacuationHookSpec `json:"spec"`

	// status is what the controller observed, and its runs.
	// +optional
	Status EvacuationHookStatus `json:"status,omitempty"`
}

// EvacuationHookList is a list of EvacuationHooks.
//
// +kubebuilder:object:root=true
type EvacuationHookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EvacuationHook `json:"items"`
}

// EvacuationHookSpec says for which pods something is done first, and what.
//
// +kubebuilder:validation:XValidation:rule="[has(self.job), has(self.exec), has(self.http), has(self.wait)].filter(a, a).size() == 1",message="exactly one of job, exec, http and wait must be given"
// +kubebuilder:validation:XValidation:rule="!has(self.onShortNotice) || has(self.minimum)",fieldPath=".onShortNotice",message="onShortNotice needs a minimum: say how long it needs, too"
type EvacuationHookSpec struct {
	// podSelector selects pods of the hook's namespace by their labels. If empty or
	// unset, it selects all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator of a matchExpression must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="values of a matchExpression must be given for the operators In and NotIn, and for no others"
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// matchConditions are CEL expressions over the pod, as in an EvictionInterceptor.
	// All must be true. The pod is the variable pod (or object), its namespace the
	// variable namespaceObject. An expression that fails counts as false.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// priority orders the interceptors of a pod: the highest runs first, equal ones are
	// ordered by name.
	// +optional
	// +default=10000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Priority *int32 `json:"priority,omitempty"`

	// guard says when a PodDisruptionBudget of Drawbridge protects the pods:
	// WhileEvacuating (from the first eviction until the last interceptor), Always
	// (from the pod's start) or Never.
	// +optional
	// +default="WhileEvacuating"
	Guard GuardPolicy `json:"guard,omitempty"`

	// job runs a Job in the hook's namespace.
	// +optional
	Job *HookJob `json:"job,omitempty"`

	// exec runs a command in a container of the pod. The administrator must have
	// switched it on (chart value hooks.exec.enabled).
	// +optional
	Exec *HookExec `json:"exec,omitempty"`

	// http sends a request to the pod, to a Service of the namespace or to another host
	// by TLS.
	// +optional
	HTTP *HookHTTP `json:"http,omitempty"`

	// wait waits until a condition is true.
	// +optional
	Wait *HookWait `json:"wait,omitempty"`

	// deadline of one attempt, at least 1s and at most 24h. An attempt that takes longer
	// has failed. All attempts together have at most the time that the administrator
	// allows (24h by default); with more, each attempt gets its share.
	// +optional
	// +default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="deadline must be at least 1s and at most 24h"
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// minimum is how long the hook needs at least for a pod, from 1s to 24h. If a deadline
	// leaves it less when its turn comes, the event ShortNotice says so, and onShortNotice
	// decides. If unset, it takes what it gets. An EvictionRequest keeps the one that was in
	// force when it was planned.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="minimum must be at least 1s and at most 24h"
	Minimum *metav1.Duration `json:"minimum,omitempty"`

	// onShortNotice says what happens if a deadline leaves less than minimum: Begin, the
	// default, lets the hook do what it can until then; Skip passes it over at once.
	// +optional
	OnShortNotice ShortNoticePolicy `json:"onShortNotice,omitempty"`

	// onNodeLost says what happens while the pod's node is lost, as in an
	// EvictionInterceptor: Wait, Skip or Interrupt. Skip lets an attempt that runs continue, but
	// makes no other one and does not hold the pod; Interrupt ends it as well. The default is
	// Skip for exec and http, which have to reach the pod, and Wait for job and wait. An http
	// that asks something else than the pod may say Wait.
	// +optional
	OnNodeLost NodeLostPolicy `json:"onNodeLost,omitempty"`

	// nativeKey makes the hook a responder of Kubernetes' own API (lifecycle.k8s.io), too,
	// for the pods of its namespace that name this key in spec.evictionResponders. While
	// Drawbridge takes part in that API, these pods have the hook natively and not
	// otherwise.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 253",message="nativeKey must be a domain, '/' and at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit (for example db.example.com/checkpoint)"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(k8s|kubernetes)[.]io/') && self != 'drawbridge.dev/interceptors'",message="nativeKey must not be drawbridge.dev/interceptors, and no key under k8s.io or kubernetes.io: these belong to Drawbridge and to Kubernetes"
	NativeKey string `json:"nativeKey,omitempty"`

	// retries is how many more attempts are made after one that failed.
	// +optional
	// +default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Retries *int32 `json:"retries,omitempty"`

	// onFailure says what happens to a pod for which the last attempt has failed: Hold
	// keeps it until the hook is changed or the interceptor is skipped, Continue proceeds
	// to the next interceptor.
	// +optional
	// +default="Hold"
	OnFailure HookFailurePolicy `json:"onFailure,omitempty"`

	// undo is done once when the eviction is canceled after the hook began. A Job of
	// the hook that still runs is deleted before.
	// +optional
	Undo *HookUndo `json:"undo,omitempty"`

	// pointOfNoReturn says that what has begun must be finished: if the eviction is
	// canceled, the hook continues to its end, and nothing is undone.
	// +optional
	PointOfNoReturn bool `json:"pointOfNoReturn,omitempty"`
}

// NodeLostPolicy is onNodeLost, or its default.
func (s *EvacuationHookSpec) NodeLostPolicy() NodeLostPolicy {
	switch {
	case s.OnNodeLost != "":
		return s.OnNodeLost
	case s.Exec != nil || s.HTTP != nil:
		return NodeLostSkip
	default:
		return NodeLostWait
	}
}

// HookFailurePolicy says what happens to a pod for which a hook failed.
//
// +kubebuilder:validation:Enum=Hold;Continue
type HookFailurePolicy string

// Failure policies of a hook.
const (
	// HookHold keeps the pod.
	HookHold HookFailurePolicy = "Hold"
	// HookContinue proceeds to the next interceptor.
	HookContinue HookFailurePolicy = "Continue"
)

// HookUndo is done when an eviction is canceled.
//
// +kubebuilder:validation:XValidation:rule="[has(self.job), has(self.exec), has(self.http)].filter(a, a).size() == 1",message="exactly one of job, exec and http must be given"
type HookUndo struct {
	// job runs a Job in the hook's namespace.
	// +optional
	Job *HookJob `json:"job,omitempty"`

	// exec runs a command in a container of the pod.
	// +optional
	Exec *HookExec `json:"exec,omitempty"`

	// http sends a request.
	// +optional
	HTTP *HookHTTP `json:"http,omitempty"`
}

// HookJob runs a Job.
type HookJob struct {
	// template is a JobTemplateSpec of batch/v1. A string of the form ${EXPRESSION} is
	// a CEL expression over the variables pod and request, and its value has the
	// expression's type. All containers get the environment variables POD_NAME, POD_UID,
	// POD_IP, NODE_NAME, REQUESTERS (names, separated by commas), DEADLINE (of the
	// attempt, RFC 3339) and ATTEMPT (from 1).
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template runtime.RawExtension `json:"template"`

	// onSameNode runs the Job's pod on the node of the pod, although that is cordoned,
	// which local volumes need. By default it runs anywhere else.
	// +optional
	OnSameNode bool `json:"onSameNode,omitempty"`
}

// HookExec runs a command in a container of the pod.
type HookExec struct {
	// container to run it in. Default: the one that the annotation
	// kubectl.kubernetes.io/default-container names, else the first.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`

	// command and its arguments. It is no shell: use ["sh", "-c", "..."] for one. Exit
	// code 0 is success.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Command []string `json:"command"`
}

// HookHTTP sends a request. A status of 2xx is success, except for 202, which says that
// the work is in progress: the URL of its Location (or the same one) is asked with GET until it
// answers 2xx. 429 and 503 mean to try again, after Retry-After. All others fail.
// Redirects are not followed.
type HookHTTP struct {
	// method of the request.
	// +optional
	// +default="POST"
	// +kubebuilder:validation:Enum=GET;PUT;POST;PATCH;DELETE
	// +kubebuilder:validation:MaxLength=6
	Method string `json:"method,omitempty"`

	// url to ask: https, or http to the pod itself (${'http://' + pod.status.podIP +
	// ':8080/'}) or to a Service of the namespace (http://NAME:PORT/ or
	// http://NAME.NAMESPACE.svc:PORT/). Loopback, link-local addresses and those of
	// the API server are refused. ${EXPRESSION} is a CEL expression over the variables pod and request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('${') || (isURL(self) && url(self).getScheme() in ['http', 'https'])",message="url must be an absolute URL with the scheme https or http, or an expression in ${}"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/?#]*//[^/?#]*@')",message="url must have no user and no password: headersFrom is for these"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('${') || self.lowerAscii().matches('^https?://((0|[1-9][0-9]{0,2})([.](0|[1-9][0-9]{0,2})){3}|[[][0-9a-f:.]+[]]|([a-z0-9_][-a-z0-9_]*[.])*([a-z]|[0-9]+[-a-wyz])[-a-z0-9]*[.]?)(:[0-9]+)?([/?#].*)?$')",message="the host of url must be a DNS name or an IP address in its usual form"
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().matches('^https?://((0|127|169[.]254)[.][0-9.]+|[[](::|0+:|fe[89ab][0-9a-f]:|ff|fd00:0?ec2:|0*64:ff9b:)[^/?#]*|([^:/?#]*[.])?localhost([.]localdomain)?[.]?)([:/?#].*)?$')",message="url must not be of loopback, of a link-local address or of a cloud's metadata"
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().matches('^https?://kubernetes([.]default([.]svc([.][^:/?#]*)?)?)?[.]?([:/?#].*)?$')",message="url must not be of the API server"
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().startsWith('http:') || self.lowerAscii().matches('^http://([0-9.]+|[[][^/?#]*|[^.:/?#]+([.][^.:/?#]+[.]svc)?)([:/?#].*)?$')",message="url without TLS must be of the pod itself or of a Service of the namespace: http://NAME:PORT/ or http://NAME.NAMESPACE.svc:PORT/"
	URL string `json:"url"`

	// headersFrom is a Secret of the namespace: each of its keys is the name of a
	// header.
	// +optional
	HeadersFrom *HookObject `json:"headersFrom,omitempty"`

	// body of the request. ${EXPRESSION} is a CEL expression over the variables pod and
	// request: a string is sent as it is, everything else as JSON.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Body string `json:"body,omitempty"`

	// caFrom is a ConfigMap of the namespace: its key ca.crt has the certificates, in
	// PEM, that the server's one is verified with. Default: those of the system.
	// +optional
	CAFrom *HookObject `json:"caFrom,omitempty"`
}

// HookObject names an object of the namespace.
type HookObject struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// HookWait waits until a condition is true. The objects are watched.
type HookWait struct {
	// workload is another object of the namespace that the condition reads.
	// +optional
	Workload *WorkloadReference `json:"workload,omitempty"`

	// until is a CEL expression over the variables pod, request and, if workload is
	// given, workload. It is null while it does not exist.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('${')",message="${} belongs into job.template, http.url and http.body; here write the expression alone"
	Until string `json:"until"`
}

// HookTestRequester is the requester of kubectl drawbridge hooks test. It wants the hook
// to run, and no eviction: the hook withdraws it when it has ended.
const HookTestRequester = "test" + HookInterceptorSuffix

// HookInterceptorSuffix is the end of the names of all hooks' interceptors.
const HookInterceptorSuffix = ".hooks.drawbridge.dev"

// HookInterceptor is the name of a hook's interceptor.
func HookInterceptor(hook types.NamespacedName) string {
	return hook.Name + "." + hook.Namespace + HookInterceptorSuffix
}

// HookOf is the hook whose interceptor has that name.
func HookOf(interceptor string) (hook types.NamespacedName, ok bool) {
	rest, ok := strings.CutSuffix(interceptor, HookInterceptorSuffix)
	at := strings.LastIndexByte(rest, '.')
	if !ok || at <= 0 || at == len(rest)-1 {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: rest[at+1:], Name: rest[:at]}, true
}

// Parts of the name of a hook's Job, in characters.
const (
	hookJobPrefix = 40
	hookJobHash   = 10
)

// HookJobName is the name of the Job of one attempt of a hook for an EvictionRequest. An
// attempt has one name, so that it has one Job. It is a DNS label: the Job's pods have it
// in their names and labels.
func HookJobName(hook string, requestUID types.UID, attempt int32) string {
	prefix := strings.ReplaceAll(hook[:min(len(hook), hookJobPrefix)], ".", "-")
	sum := sha256.Sum256([]byte(requestUID))
	return strings.TrimRight(prefix, "-") + "-" + hex.EncodeToString(sum[:])[:hookJobHash] + "-" + strconv.Itoa(int(attempt))
}
