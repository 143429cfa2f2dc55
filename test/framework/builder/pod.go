package builder

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// PodWrapper builds a pod.
type PodWrapper struct {
	*corev1.Pod
	common[*PodWrapper, *corev1.Pod]
}

func wrapPod(object *corev1.Pod) *PodWrapper {
	return share(&PodWrapper{Pod: object}, object, wrapPod)
}

// Pod begins with a pod of one container, not yet scheduled, without a UID.
func Pod(namespace, name string) *PodWrapper {
	return wrapPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       podSpec(),
	})
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app:1"}}}
}

// Interceptors names the pod's interceptors by annotation, in this order.
func (w *PodWrapper) Interceptors(names ...string) *PodWrapper {
	return w.Annotation(v1alpha1.InterceptorsAnnotation, strings.Join(names, ","))
}

// Responders adds responders of Kubernetes' own API, with the priority that is meant for
// controllers of pods. They need Kubernetes 1.37 with the feature gate EvictionRequestAPI.
func (w *PodWrapper) Responders(names ...string) *PodWrapper {
	for _, name := range names {
		w.Spec.EvictionResponders = append(w.Spec.EvictionResponders, corev1.EvictionResponder{Name: name, Priority: ptr.To[int32](10000)})
	}
	return w
}

// Finalizer adds a finalizer.
func (w *PodWrapper) Finalizer(name string) *PodWrapper {
	w.Finalizers = append(w.Finalizers, name)
	return w
}

// Deleting makes the pod one that was deleted and has until at to end; its grace
// period is the one of its spec, or 30 seconds.
func (w *PodWrapper) Deleting(at time.Time) *PodWrapper {
	w.DeletionTimestamp = ptr.To(metav1.NewTime(at))
	w.DeletionGracePeriodSeconds = ptr.To(ptr.Deref(w.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	return w
}

// OwnedBy makes an object of this kind the pod's controller: a kind of apps/v1, a
// Job or a Node. Its UID is OwnerUID of the same.
func (w *PodWrapper) OwnedBy(kind, name string) *PodWrapper {
	apiVersion := "apps/v1"
	switch kind {
	case "Job":
		apiVersion = "batch/v1"
	case "Node":
		apiVersion = "v1"
	}
	return w.Owner(metav1.OwnerReference{
		APIVersion: apiVersion, Kind: kind, Name: name, UID: OwnerUID(kind, name),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	})
}

// OwnerUID is the UID that OwnedBy gives to an owner.
func OwnerUID(kind, name string) types.UID {
	return types.UID("uid-of-" + strings.ToLower(kind) + "-" + name)
}

// Owner adds an owner reference as it is.
func (w *PodWrapper) Owner(reference metav1.OwnerReference) *PodWrapper {
	w.OwnerReferences = append(w.OwnerReferences, reference)
	return w
}

// DaemonSet makes it a pod of this DaemonSet.
func (w *PodWrapper) DaemonSet(name string) *PodWrapper { return w.OwnedBy("DaemonSet", name) }

// Mirror makes it the mirror of a static pod of its node, which must be set before.
func (w *PodWrapper) Mirror() *PodWrapper {
	return w.Annotation(corev1.MirrorPodAnnotationKey, "mirror").OwnedBy("Node", w.Spec.NodeName)
}

// Node schedules the pod to a node.
func (w *PodWrapper) Node(name string) *PodWrapper {
	w.Spec.NodeName = name
	return w
}

// NodeSelector restricts the nodes it may run on.
func (w *PodWrapper) NodeSelector(key, value string) *PodWrapper {
	setKey(&w.Spec.NodeSelector, key, value)
	return w
}

// Tolerate lets it run on nodes with any taint.
func (w *PodWrapper) Tolerate() *PodWrapper {
	w.Spec.Tolerations = append(w.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	return w
}

// GracePeriod sets its termination grace period, in seconds.
func (w *PodWrapper) GracePeriod(seconds int64) *PodWrapper {
	w.Spec.TerminationGracePeriodSeconds = &seconds
	return w
}

// Priority sets its priority and priority class.
func (w *PodWrapper) Priority(class string, value int32) *PodWrapper {
	w.Spec.PriorityClassName, w.Spec.Priority = class, &value
	return w
}

// CPU sets what its container requests, such as "1" or "500m".
func (w *PodWrapper) CPU(quantity string) *PodWrapper {
	w.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	return w
}

// Change does anything else.
func (w *PodWrapper) Change(change func(*corev1.Pod)) *PodWrapper {
	change(w.Pod)
	return w
}

// Phase sets status.phase.
func (w *PodWrapper) Phase(phase corev1.PodPhase) *PodWrapper {
	w.Status.Phase = phase
	return w
}

// Ready makes it a pod that runs and is Ready.
func (w *PodWrapper) Ready() *PodWrapper {
	return w.Phase(corev1.PodRunning).Condition(corev1.PodReady, corev1.ConditionTrue)
}

// Unready makes it a pod that runs and is not Ready.
func (w *PodWrapper) Unready() *PodWrapper {
	return w.Phase(corev1.PodRunning).Condition(corev1.PodReady, corev1.ConditionFalse)
}

// Condition sets one of its conditions.
func (w *PodWrapper) Condition(kind corev1.PodConditionType, status corev1.ConditionStatus) *PodWrapper {
	for i := range w.Status.Conditions {
		if w.Status.Conditions[i].Type == kind {
			w.Status.Conditions[i].Status = status
			return w
		}
	}
	w.Status.Conditions = append(w.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
	return w
}
