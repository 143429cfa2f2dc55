package deletioncost

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// FormerAnnotation has the pod's own deletion cost while it has ours; it is empty if the pod
// had none. The API server does not accept an empty cost.
const FormerAnnotation = v1alpha1.GroupName + "/former-deletion-cost"

// cost is the one of a pod whose eviction is requested.
var cost = strconv.Itoa(pods.LeavingCost)

// input is the input of step.
type input struct {
	// Annotations of the pod.
	Annotations map[string]string
	// Ending: the pod is being deleted or has ended, so its cost matters no more.
	Ending bool
	// OfReplicaSet: a ReplicaSet controls the pod. No other controller reads the cost.
	OfReplicaSet bool
	// Running: an EvictionRequest for the pod runs. Lasting: it will not be over in a
	// moment.
	Running, Lasting bool
}

// change is what to do with a pod.
type change int

const (
	keep change = iota
	lower
	undo
)

// step decides. It writes once at the beginning and once at the end: what a person changes in
// between stays, and so does a cost that is as low already.
func step(in input) change {
	_, marked := in.Annotations[FormerAnnotation]
	switch {
	case in.Ending:
		return keep
	case marked && !in.Running:
		return undo
	case !marked && in.Running && in.Lasting && in.OfReplicaSet && pods.DeletionCost(in.Annotations) > pods.LeavingCost:
		return lower
	}
	return keep
}

// patchOf carries out a change, on this very pod and if the annotations are still the same.
func patchOf(uid types.UID, annotations map[string]string, do change) ([]byte, error) {
	ops := []jsonpatch.Op{jsonpatch.TestUID(uid)}
	if do == undo {
		return jsonpatch.Encode(append(ops, Undo(annotations)...))
	}
	if len(annotations) == 0 {
		ops = append(ops, jsonpatch.Test("/metadata/annotations", jsonpatch.Null), jsonpatch.Add("/metadata/annotations", struct{}{}))
	}
	former, had := annotations[corev1.PodDeletionCost]
	was := any(jsonpatch.Null)
	if had {
		was = former
	}
	return jsonpatch.Encode(append(ops,
		jsonpatch.Test(jsonpatch.Annotation(corev1.PodDeletionCost), was),
		jsonpatch.Test(jsonpatch.Annotation(FormerAnnotation), jsonpatch.Null),
		jsonpatch.Add(jsonpatch.Annotation(FormerAnnotation), former),
		jsonpatch.Add(jsonpatch.Annotation(corev1.PodDeletionCost), cost),
	))
}

// Undo returns the operations that take back what Drawbridge wrote to a pod with these
// annotations; none if it wrote nothing. A cost that is not ours any more stays.
func Undo(annotations map[string]string) []jsonpatch.Op {
	former, marked := annotations[FormerAnnotation]
	if !marked {
		return nil
	}
	ops := []jsonpatch.Op{jsonpatch.Test(jsonpatch.Annotation(FormerAnnotation), former), jsonpatch.Remove(jsonpatch.Annotation(FormerAnnotation))}
	path := jsonpatch.Annotation(corev1.PodDeletionCost)
	switch now, has := annotations[corev1.PodDeletionCost]; {
	case !has:
		return append(ops, jsonpatch.Test(path, jsonpatch.Null))
	case now != cost:
		return append(ops, jsonpatch.Test(path, now))
	case former == "":
		return append(ops, jsonpatch.Test(path, cost), jsonpatch.Remove(path))
	}
	return append(ops, jsonpatch.Test(path, cost), jsonpatch.Replace(path, former))
}
