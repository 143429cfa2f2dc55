package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EvacuationHookStatus is what the controller observed, and its runs.
type EvacuationHookStatus struct {
	// observedGeneration is the metadata.generation that the conditions are based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// matchingPods is how many pods the hook covers. It lags behind by a few seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MatchingPods *int32 `json:"matchingPods,omitempty"`

	// runs are those of requests that have not ended: what was begun is recorded here
	// first, so that it is done once.
	// +optional
	// +listType=map
	// +listMapKey=requestUID
	// +kubebuilder:validation:MaxItems=256
	Runs []HookRun `json:"runs,omitempty"`

	// conditions are Accepted (selectors, expressions and templates are well formed),
	// Evaluated (False while a matchCondition fails for a pod), Covers (True while there
	// are pods that it covers) and LastRun (True if the last run succeeded).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime > timestamp('1970-01-01T00:00:00Z') && c.lastTransitionTime < timestamp('9999-12-31T00:00:00Z'))",message="lastTransitionTime must be a time of this epoch in RFC 3339"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HookRun is what a hook does for one EvictionRequest, or for one native Eviction.
type HookRun struct {
	// requestUID is the UID of the EvictionRequest, or of the Eviction.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	RequestUID string `json:"requestUID"`

	// request is the UID of the pod, and the name of its EvictionRequest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Request string `json:"request"`

	// eviction is the name of the native Eviction (lifecycle.k8s.io), if the hook has its turn
	// there.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Eviction string `json:"eviction,omitempty"`

	// pod is the name of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// phase of the run.
	// +required
	Phase HookPhase `json:"phase"`

	// attempt counts the attempts, from 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Attempt int32 `json:"attempt"`

	// generation of the hook that the attempts since firstAttempt were made with.
	// +required
	Generation int64 `json:"generation"`

	// firstAttempt is the first attempt of that generation.
	// +required
	// +kubebuilder:validation:Minimum=1
	FirstAttempt int32 `json:"firstAttempt"`

	// startTime of the attempt; while Retrying or Refused, when the next one may begin.
	// +required
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="startTime must be a time of this epoch in RFC 3339"
	StartTime metav1.Time `json:"startTime"`

	// message says why the last attempt failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// HookPhase is the phase of a run.
//
// +kubebuilder:validation:Enum=Running;Refused;Retrying;Succeeded;Held;Continued;Undoing;Undone
type HookPhase string

// Phases of a run.
const (
	// HookRunning: the attempt has begun.
	HookRunning HookPhase = "Running"
	// HookRefused: the attempt cannot begin, because the cluster refuses its Job. It is
	// tried again at startTime, and does not count as one that has failed.
	HookRefused HookPhase = "Refused"
	// HookRetrying: the attempt has failed, and there will be another one.
	HookRetrying HookPhase = "Retrying"
	// HookSucceeded: the hook is done.
	HookSucceeded HookPhase = "Succeeded"
	// HookHeld: the last attempt has failed and the pod is kept.
	HookHeld HookPhase = "Held"
	// HookContinued: the last attempt has failed and the eviction continues.
	HookContinued HookPhase = "Continued"
	// HookUndoing: the eviction was canceled, and the undo has begun.
	HookUndoing HookPhase = "Undoing"
	// HookUndone: the undo has ended, well or not.
	HookUndone HookPhase = "Undone"
)

// Labels of the Jobs of hooks.
const (
	// HookLabel is the name of the hook.
	HookLabel = "drawbridge.dev/hook"
	// HookRequestLabel is the UID of the EvictionRequest, or of the native Eviction.
	HookRequestLabel = "drawbridge.dev/eviction-request"
	// HookETAAnnotation may be set on the Job by its own container: when it expects to
	// finish, in RFC 3339.
	HookETAAnnotation = "drawbridge.dev/expected-finish-time"
)

// Types and reasons of the conditions of an EvacuationHook, beside those of an
// EvictionInterceptor.
const (
	// ConditionCovers is True while there are pods that the hook covers.
	ConditionCovers = "Covers"
	// ConditionLastRun is True if the last run succeeded.
	ConditionLastRun = "LastRun"

	// ReasonInvalidTemplate: the template is no Job that the API server takes.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonExecDisabled: the administrator has not switched on exec.
	ReasonExecDisabled = "ExecDisabled"
	// ReasonHTTPDisabled: the administrator has switched off http.
	ReasonHTTPDisabled = "HTTPDisabled"
	// ReasonCoversPods: there are pods that it covers.
	ReasonCoversPods = "CoversPods"
	// ReasonCoversNone: there are none.
	ReasonCoversNone = "CoversNone"
	// ReasonSucceeded: the last run succeeded.
	ReasonSucceeded = "Succeeded"
	// ReasonFailed: its last attempt failed.
	ReasonFailed = "Failed"
)
