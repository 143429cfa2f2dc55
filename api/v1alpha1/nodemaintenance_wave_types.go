package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaintenanceWave is a group of pods that leave a node at the same time. A pod that it selects
// matches all of priorityAtLeast, podSelector and namespaceSelector that are given.
//
// +kubebuilder:validation:XValidation:rule="has(self.priorityAtLeast) || has(self.podSelector) || has(self.namespaceSelector) || (has(self.daemonSets) && self.daemonSets)",message="a wave must select pods: give priorityAtLeast, podSelector or namespaceSelector (podSelector: {} selects all), or set daemonSets to true"
type MaintenanceWave struct {
	// name of the wave, unique in the list. Messages and the status have it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be lower-case letters, digits and hyphens, beginning and ending with a letter or digit (for example storage)"
	Name string `json:"name"`

	// priorityAtLeast selects pods whose priority is at least this. A pod without one has
	// the priority 0.
	// +optional
	PriorityAtLeast *int32 `json:"priorityAtLeast,omitempty"`

	// podSelector selects pods by their labels. An empty one selects all.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespaceSelector selects pods by the labels of their namespaces. An empty one
	// selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// daemonSets makes it the wave of the pods of DaemonSets, and of no others. Only the last
	// wave of the list may be one, and without one, these pods stay. When it begins on a node,
	// the node gets the taint drawbridge.dev/maintenance:NoSchedule until the maintenance
	// ends, so that the pods are not recreated, and they are evicted. Pods that tolerate
	// this taint stay, and so do those of the priority classes system-node-critical and
	// system-cluster-critical.
	// +optional
	DaemonSets bool `json:"daemonSets,omitempty"`

	// timeout is how long, at least 1s and at most 168h, the next wave waits for the pods of
	// this one after this one has begun on the node. Then the next one begins, and no later
	// one waits for the pods that are left. They are still evacuated. If unset, the next
	// wave begins when the pods of this one are gone.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="timeout must be at least 1s and at most 168h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
