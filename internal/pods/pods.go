// Package pods has the predicates of pods that the whole product shares.
package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// HasEnded reports whether the pod has ended while its object remains. These phases are
// final, so a cached one can be trusted.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsReady reports whether the pod's condition Ready is True.
func IsReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// IsMirror reports whether the pod mirrors a static pod of a kubelet.
func IsMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// IsOfDaemonSet reports whether a DaemonSet controls the pod. Its controller would
// create another one on the same node.
func IsOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// StaysOnNode reports whether drains leave the pod on its node: a mirror pod or one of
// a DaemonSet (statements 78 and 79; KEP-4212, "Used drain filters").
func StaysOnNode(pod *corev1.Pod) bool { return IsMirror(pod) || IsOfDaemonSet(pod) }

// DeletionChanged reports whether the deletion time differs at all: it can be
// shortened after it was set.
func DeletionChanged(before, after metav1.Object) bool {
	return !before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp())
}

// HasNativeResponders reports whether the pod names responders in spec.evictionResponders
// besides v1alpha1.NativeResponder, which stands for the interceptors of Drawbridge.
func HasNativeResponders(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.EvictionResponders, func(r corev1.EvictionResponder) bool { return r.Name != v1alpha1.NativeResponder })
}

// NamesNativeResponder reports whether v1alpha1.NativeResponder is among them.
func NamesNativeResponder(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.EvictionResponders, func(r corev1.EvictionResponder) bool { return r.Name == v1alpha1.NativeResponder })
}
