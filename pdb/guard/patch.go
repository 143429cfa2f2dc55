package guard

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// patchOp is an operation of a JSON patch. A test of null holds if there is
// nothing at the path.
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// labelPatch puts the label on the very pod, or takes it off, if its label is
// still as it was seen. Other labels stay as they are.
func labelPatch(pod *corev1.Pod, change Change) ([]byte, error) {
	path := "/metadata/labels/" + strings.ReplaceAll(strings.ReplaceAll(v1alpha1.GuardLabel, "~", "~0"), "/", "~1")
	none := json.RawMessage("null")
	ops := []patchOp{{Op: "test", Path: "/metadata/uid", Value: pod.UID}}
	seen, present := pod.Labels[v1alpha1.GuardLabel]
	switch {
	case change == ChangeOpen:
		ops = append(ops, patchOp{"test", path, seen}, patchOp{Op: "remove", Path: path})
	case len(pod.Labels) == 0:
		ops = append(ops, patchOp{"test", "/metadata/labels", none},
			patchOp{"add", "/metadata/labels", map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed}})
	case present:
		ops = append(ops, patchOp{"test", path, seen}, patchOp{"replace", path, v1alpha1.GuardClosed})
	default:
		ops = append(ops, patchOp{"test", path, none}, patchOp{"add", path, v1alpha1.GuardClosed})
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}
