package pods

import (
	"maps"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// CopiedLabels are those of a pod's labels that its request has, too (statement 57): all
// but the guard's, which changes with the request's own state, so that copying it would
// cost two more writes per eviction.
func CopiedLabels(pod map[string]string) map[string]string {
	if _, ok := pod[v1alpha1.GuardLabel]; !ok {
		return pod
	}
	copied := maps.Clone(pod)
	delete(copied, v1alpha1.GuardLabel)
	return copied
}
