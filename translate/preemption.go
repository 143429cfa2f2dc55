package translate

import (
	"fmt"
	"strconv"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// AllowDisruption reads the annotation
// drawbridge.dev/allow-disruption-by-priority-greater-than-or-equal, of a PriorityClass
// or of a pod: the lowest priority of preemptors that may violate the pod's budgets.
// Nil: there is none, any preemptor may. Error: the annotation is there and no decimal
// int32 up to 2000000000, written as Kubernetes writes numbers; it counts as missing,
// because a typo must not keep pods pending forever.
func AllowDisruption(annotations map[string]string) (*int32, error) {
	text, ok := annotations[v1alpha1.AllowDisruptionAnnotation]
	if !ok {
		return nil, nil
	}
	problem := func(what string) error {
		return fmt.Errorf("annotation %s: %q %s", v1alpha1.AllowDisruptionAnnotation, shorten(text, maxQuoted), what)
	}
	parsed, err := strconv.ParseInt(text, 10, 32)
	if err != nil || strconv.FormatInt(parsed, 10) != text {
		return nil, problem("is no int32 in plain decimal digits, such as 100000")
	}
	value := int32(parsed)
	if value > v1alpha1.MaxAllowDisruption {
		return nil, problem(fmt.Sprintf("is above %d, the priority of system-cluster-critical", v1alpha1.MaxAllowDisruption))
	}
	return &value, nil
}
