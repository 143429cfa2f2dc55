package pods

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The deletion costs that Drawbridge gives to pods. The annotation is an int32.
const (
	// ChosenCost is of pods that `kubectl drawbridge scale --balanced` has chosen: the lowest.
	ChosenCost = math.MinInt32
	// LeavingCost is of pods whose eviction is requested: the lowest but one, so that a
	// balanced scale-down can still take others first.
	LeavingCost = math.MinInt32 + 1
)

// DeletionCost is the pod's, 0 if it has none that Kubernetes understands
// (GetDeletionCostFromPodAnnotations in pkg/apis/core/helper of Kubernetes).
func DeletionCost(annotations map[string]string) int32 {
	text := annotations[corev1.PodDeletionCost]
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "0") {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
