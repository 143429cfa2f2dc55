package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BudgetGrant is an eviction that was granted.
type BudgetGrant struct {
	// podUID is the UID of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID"`

	// pod is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// request is the UID of the EvictionRequest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Request string `json:"request"`

	// group of the pod; "?" if it had no node yet that tells it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Group string `json:"group,omitempty"`

	// owner is what creates another pod in its place, unset if nothing does.
	// +optional
	Owner *BudgetOwner `json:"owner,omitempty"`

	// pods is how many the owner had, if nobody could say how many it should have. It is
	// what is waited for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pods int32 `json:"pods,omitempty"`

	// disruptionBudget is the PodDisruptionBudget in spite of which the pod is deleted, as
	// spec.exhausted says. No other pod of it goes so while this grant stands.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DisruptionBudget string `json:"disruptionBudget,omitempty"`

	// time is when it was granted.
	// +required
	// +kubebuilder:validation:XValidation:rule="self > timestamp('1970-01-01T00:00:00Z') && self < timestamp('9999-12-31T00:00:00Z')",message="time must be a time of this epoch in RFC 3339"
	Time metav1.MicroTime `json:"time"`
}

// BudgetOwner is what creates another pod in the place of one that has left.
type BudgetOwner struct {
	// apiVersion of the owner.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the owner.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the owner.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid of the owner.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// BudgetOpening is one time that a window is open.
type BudgetOpening struct {
	// start is when it opens, or has opened.
	// +required
	Start metav1.Time `json:"start"`

	// end is when it closes. Windows that overlap are one.
	// +required
	End metav1.Time `json:"end"`
}
