package v1alpha1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// OrderInterceptor is the interceptor that waits as spec.after of the pod's registrations
	// says. Drawbridge puts it before the first of them.
	OrderInterceptor = "order." + GroupName
	// OrderInterceptorSuffix ends the names of registrations that have no interceptor of their
	// own: their place is that of OrderInterceptor, and nobody else has a turn for them.
	OrderInterceptorSuffix = "." + OrderInterceptor

	// DefaultOrderTimeout is spec.after.timeout of a registration that gives none.
	DefaultOrderTimeout = 10 * time.Minute
)

// IsOrderName reports whether a registration of that name has no interceptor of its own.
func IsOrderName(name string) bool { return strings.HasSuffix(name, OrderInterceptorSuffix) }

// EvictionOrder selects the pods of the same node that are to leave first. A pod that it
// selects matches both selectors.
//
// +kubebuilder:validation:XValidation:rule="(has(self.podSelector) && ((has(self.podSelector.matchLabels) && size(self.podSelector.matchLabels) > 0) || (has(self.podSelector.matchExpressions) && size(self.podSelector.matchExpressions) > 0))) || (has(self.namespaceSelector) && ((has(self.namespaceSelector.matchLabels) && size(self.namespaceSelector.matchLabels) > 0) || (has(self.namespaceSelector.matchExpressions) && size(self.namespaceSelector.matchExpressions) > 0)))",message="after must select pods: give a podSelector or a namespaceSelector that is not empty"
type EvictionOrder struct {
	// podSelector selects pods by their labels. If empty or unset, it selects all of the
	// namespaces.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespaceSelector selects pods by the labels of their namespaces. If empty or unset, it
	// selects all namespaces, also kube-system and Drawbridge's own.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// timeout is how long the pod waits for the others at most, from 1s to 24h, 10m if unset.
	// After it the next interceptor has its turn, whoever is still there.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be at least 1s and at most 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// TimeoutOrDefault is how long pods wait at most.
func (o *EvictionOrder) TimeoutOrDefault() time.Duration {
	if o.Timeout == nil {
		return DefaultOrderTimeout
	}
	return o.Timeout.Duration
}
