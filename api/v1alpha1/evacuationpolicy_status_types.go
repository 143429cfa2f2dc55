package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EvacuationPolicyStatus is what the controller observed.
type EvacuationPolicyStatus struct {
	// observedGeneration is the metadata.generation that the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted (the expressions are well formed), Ready (the kinds are
	// installed and may be read and written), Evaluated (False while an expression
	// fails), Exclusive (False while another policy covers one of its pods), Progressing
	// (False while an evacuation is given up) and Marking (False while marks are refused
	// or do not last).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime > timestamp('1970-01-01T00:00:00Z') && c.lastTransitionTime < timestamp('9999-12-31T00:00:00Z'))",message="lastTransitionTime must be a time of this epoch in RFC 3339"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Types and reasons of the conditions of an EvacuationPolicy, besides
// ConditionAccepted and ConditionEvaluated with their reasons.
const (
	// ConditionReady is True when the kinds that the policy needs are installed and
	// may be read and written.
	ConditionReady = "Ready"
	// ConditionExclusive is False while another policy covers one of its pods.
	ConditionExclusive = "Exclusive"
	// ConditionProgressing is False while an evacuation is given up.
	ConditionProgressing = "Progressing"

	// ConditionMarking is False while marks, or their removal, have no effect.
	ConditionMarking = "Marking"

	// ReasonMarking: no mark is refused or discarded.
	ReasonMarking = "Marking"
	// ReasonDiscarded: the API server reported success, but the mark is missing.
	ReasonDiscarded = "Discarded"
	// ReasonRejected: the API server refuses a mark.
	ReasonRejected = "Rejected"
	// ReasonReady: everything is there.
	ReasonReady = "Ready"
	// ReasonKindNotInstalled: a kind is not installed. The controller checks again
	// later.
	ReasonKindNotInstalled = "KindNotInstalled"
	// ReasonForbidden: Drawbridge lacks a permission.
	ReasonForbidden = "Forbidden"
	// ReasonNotSynced: the objects are being read.
	ReasonNotSynced = "NotSynced"
	// ReasonExclusive: no other policy covers its pods.
	ReasonExclusive = "Exclusive"
	// ReasonOverlapping: another policy covers one of its pods.
	ReasonOverlapping = "Overlapping"
	// ReasonProgressing: no evacuation has been given up.
	ReasonProgressing = "Progressing"
	// ReasonGaveUp: an evacuation has finally failed.
	ReasonGaveUp = "GaveUp"
)
