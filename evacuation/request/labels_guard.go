package request

import (
	"maps"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// copiedLabels are the pod's labels without the guard's, which changes with the
// request's own state: copying it would cost two more writes per eviction.
func copiedLabels(pod map[string]string) map[string]string {
	if _, ok := pod[v1alpha1.GuardLabel]; !ok {
		return pod
	}
	copied := maps.Clone(pod)
	delete(copied, v1alpha1.GuardLabel)
	return copied
}
