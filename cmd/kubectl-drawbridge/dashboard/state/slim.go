package state

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// slim leaves out what no page shows: it would be most of the memory of 20,000 pods.
func slim(from any) (any, error) {
	object, err := meta.Accessor(from)
	if err != nil {
		return from, nil //nolint:nilerr // It is the mark of a deleted object, which stays as it is.
	}
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations != nil {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
	}
	switch o := from.(type) {
	case *corev1.Pod:
		slimPod(o)
	case *corev1.Node:
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	}
	return from, nil
}

func slimPod(p *corev1.Pod) {
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			c := &all[i]
			all[i] = corev1.Container{Name: c.Name, Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy}
		}
	}
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir == nil && v.PersistentVolumeClaim == nil })
	p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses = nil, nil, nil
}
