// Package podcache defines which fields of pods and nodes our informers keep. A cluster
// has many of both, and we need only few of their bytes. All decisions, and all CEL
// expressions over a pod, may use only the kept fields. Reading anything else needs a
// live GET.
package podcache

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
)

// Transform is the transform of the pod informer. It keeps what fields.go lists:
//   - of metadata: name, namespace, uid, resourceVersion, labels, annotations,
//     ownerReferences, finalizers, creationTimestamp, deletionTimestamp,
//     deletionGracePeriodSeconds;
//   - of spec: nodeName, priority, priorityClassName, serviceAccountName,
//     schedulerName, restartPolicy, terminationGracePeriodSeconds, schedulingGroup,
//     evictionResponders, and of each volume its name and kind, the name of the
//     ServiceAccount's token without its random end;
//   - of status: phase and conditions.
//
// Anything that is not a pod passes unchanged. It never fails.
func Transform(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	slim := reduced(pod)
	slim.Spec.Volumes = packed.VolumeKinds(pod.Spec.Volumes)
	return slim, nil
}

// reduced is a pod with what we keep, and with whole volumes.
func reduced(pod *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{TypeMeta: pod.TypeMeta}
	metaFields.copy(&slim.ObjectMeta, &pod.ObjectMeta)
	specFields.copy(&slim.Spec, &pod.Spec)
	statusFields.copy(&slim.Status, &pod.Status)
	return slim
}

// TransformNode is the transform of the node informer: it keeps what shows the drain
// markers of all known callers:
//   - of metadata: what Transform keeps;
//   - of spec: unschedulable and taints;
//   - of status: type, status and lastTransitionTime of the conditions (draino announces a
//     drain there, and Ready says since when a node is lost).
//
// Anything that is not a node passes unchanged. It never fails.
func TransformNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{
		TypeMeta: node.TypeMeta,
		Spec: corev1.NodeSpec{
			Unschedulable: node.Spec.Unschedulable,
			Taints:        node.Spec.Taints,
		},
	}
	metaFields.copy(&slim.ObjectMeta, &node.ObjectMeta)
	for _, c := range node.Status.Conditions {
		slim.Status.Conditions = append(slim.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
	}
	return slim, nil
}
