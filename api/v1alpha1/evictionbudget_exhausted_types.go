package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BudgetExhausted is the consent that a pod is deleted although a PodDisruptionBudget refuses
// its eviction. It counts only for a PodDisruptionBudget that can never allow one, while all
// pods that this counts are healthy and covered by one EvictionBudget, inside the windows, while
// the conditions are true, after all interceptors, for one pod of the PodDisruptionBudget at a
// time, and only if all EvictionBudgets of the pod consent. The manager must be allowed to
// delete pods: the chart's value budgets.exhausted. Whoever writes Evict must be, too.
type BudgetExhausted struct {
	// action is Wait, until the PodDisruptionBudget allows the eviction, or Evict.
	// +optional
	// +default="Wait"
	Action ExhaustedAction `json:"action,omitempty"`

	// after is how long the eviction must have been refused, from the startTime that
	// imperative-eviction.k8s.io reports in the EvictionRequest, at least 1m and at most 168h.
	// +optional
	// +default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="after must be at least 1m and at most 168h"
	After *metav1.Duration `json:"after,omitempty"`
}

// ExhaustedAction says what happens to a pod that a PodDisruptionBudget can never let go.
//
// +kubebuilder:validation:Enum=Wait;Evict
type ExhaustedAction string

// What happens to a pod that a PodDisruptionBudget can never let go.
const (
	// ExhaustedWait waits until the PodDisruptionBudget allows the eviction.
	ExhaustedWait ExhaustedAction = "Wait"
	// ExhaustedEvict deletes the pod.
	ExhaustedEvict ExhaustedAction = "Evict"
)

// DefaultExhaustedAfter is the default of exhausted.after.
const DefaultExhaustedAfter = 30 * time.Minute

// Types and reasons of the condition of an EvictionBudget that is about spec.exhausted.
const (
	// ConditionExhausted says whether pods are deleted as spec.exhausted says; it is unset if
	// that says Wait.
	ConditionExhausted = "Exhausted"

	// ReasonExhaustedEvicts: such pods are deleted.
	ReasonExhaustedEvicts = "Evicts"
	// ReasonExhaustedOff: such pods wait, because Drawbridge must not delete any.
	ReasonExhaustedOff = "SwitchedOff"
)
