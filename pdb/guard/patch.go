package guard

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

// labelPatch adds the label to this pod, or removes it, if the label has not changed.
// Other labels stay unchanged.
func labelPatch(pod *corev1.Pod, change Change) ([]byte, error) {
	path := jsonpatch.Label(v1alpha1.GuardLabel)
	ops := []jsonpatch.Op{jsonpatch.TestUID(pod.UID)}
	seen, present := pod.Labels[v1alpha1.GuardLabel]
	switch {
	case change == ChangeOpen:
		ops = append(ops, jsonpatch.Test(path, seen), jsonpatch.Remove(path))
	case len(pod.Labels) == 0:
		ops = append(ops, jsonpatch.Test("/metadata/labels", jsonpatch.Null),
			jsonpatch.Add("/metadata/labels", map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed}))
	case present:
		ops = append(ops, jsonpatch.Test(path, seen), jsonpatch.Replace(path, v1alpha1.GuardClosed))
	default:
		ops = append(ops, jsonpatch.Test(path, jsonpatch.Null), jsonpatch.Add(path, v1alpha1.GuardClosed))
	}
	return jsonpatch.Encode(ops)
}
