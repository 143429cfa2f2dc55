package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RequesterType says how patient a requester is.
type RequesterType string

// Types of requesters (KEP-4563, later stages).
const (
	RequesterSoft             RequesterType = "Soft"
	RequesterSoftWithDeadline RequesterType = "SoftWithDeadline"
	RequesterHard             RequesterType = "Hard"
)

// Requester wants the eviction.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="!has(self.type) || has(self.deadline) == (self.type == 'SoftWithDeadline')",message="type SoftWithDeadline needs a deadline, and Soft and Hard have none: set both, or neither"
type Requester struct {
	// name is the requester's fully qualified domain name, at most 253 lower-case
	// letters, digits, periods and hyphens. Unique in the list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$')",message="name must be a fully qualified domain name: at least two labels of lower-case letters, digits and hyphens, each at most 63 characters, separated by periods, without one at the end (for example foo.example.com)"
	Name string `json:"name"`

	// leaseName names a coordination.k8s.io Lease in Drawbridge's own namespace. When the
	// Lease expires, the controller removes this requester. A requester without a Lease
	// never expires. Drawbridge sets it for callers of pods/eviction, which cannot
	// withdraw themselves.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="leaseName must be the name of a Lease: lower-case letters, digits, hyphens and periods"
	LeaseName string `json:"leaseName,omitempty"`

	// gracePeriodSeconds is the termination grace period this requester asked for, in
	// seconds. If unset, it is the pod's own. imperative-eviction.k8s.io uses the largest
	// value of all requesters.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// type says how patient this requester is. Soft waits for as long as the interceptors
	// report. SoftWithDeadline waits until deadline. Hard does not wait: every interceptor
	// gets a moment to save what it can (deadlines.hardNotice, 10 seconds by default), all of
	// them at the same time, then the pod is evicted as soon as its budgets allow that. If
	// unset, deadline decides between the first two.
	// +optional
	// +kubebuilder:validation:Enum=Soft;SoftWithDeadline;Hard
	Type RequesterType `json:"type,omitempty"`

	// deadline is when this requester stops waiting, and the pod has to have ended. It may
	// be moved, and taken away. status.deadline says what that leaves the interceptors. If
	// unset, this requester waits for as long as they report.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="must be a time of this epoch in RFC 3339"
	Deadline *metav1.Time `json:"deadline,omitempty"`
}
