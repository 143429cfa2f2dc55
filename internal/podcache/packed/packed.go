// Package packed has pods in little memory, for informers. It needs nothing of CEL, because
// the SDK for interceptors links it, too.
package packed

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod as the informer holds it: what podcache.Transform keeps, in 144 bytes and 24 for
// each condition, besides what it shares with others. An empty corev1.Pod takes 1,240. Nobody
// changes it. Into and Of make a pod of it.
type Pod struct {
	name, resourceVersion, nodeName string
	uid                             types.UID
	phase                           corev1.PodPhase
	labels, annotations             map[string]string
	alike                           *alike
	leaving                         *leaving // Nil for nearly all.
	created                         int64    // Unix time. The API server has whole seconds.
	conditions                      []condition
}

// alike is what the pods of one owner have in common.
type alike struct {
	namespace string
	owners    []metav1.OwnerReference
	// Of the spec.
	priority                                 *int32
	priorityClass, serviceAccount, scheduler string
	restartPolicy                            corev1.RestartPolicy
	terminationGracePeriod                   *int64 // Seconds.
	schedulingGroup                          *corev1.PodSchedulingGroup
	evictionResponders                       []corev1.EvictionResponder // Nil for nearly all.
	volumes                                  []corev1.Volume
}

// leaving is what only pods have that are held, or about to go.
type leaving struct {
	finalizers  []string
	deleted     *metav1.Time
	gracePeriod *int64 // Seconds.
}

// condition is a condition of a pod: what many pods say, and since when this one does.
type condition struct {
	*statement

	probed, changed int64 // Unix times.
}

type statement struct {
	kind               corev1.PodConditionType
	observedGeneration int64
	status             corev1.ConditionStatus
	reason, message    string
}

// never is the zero time in Unix time.
var never = time.Time{}.Unix()

func at(unix int64) metav1.Time {
	if unix == never {
		return metav1.Time{}
	}
	return metav1.Unix(unix, 0)
}

// GetObjectMeta makes it an object to informers, which ask for its name and its version.
func (p *Pod) GetObjectMeta() metav1.Object {
	m := &metav1.ObjectMeta{}
	p.meta(m)
	return m
}

// Of is the pod of an object of an informer: the object itself, if it is a pod, or a new pod
// that shares maps and slices with a packed one. So it must not be changed. It is nil for
// other objects.
func Of(obj any) *corev1.Pod {
	if pod, ok := obj.(*corev1.Pod); ok {
		return pod
	}
	pod := &corev1.Pod{}
	if !Into(obj, pod) {
		return nil
	}
	return pod
}

// Into is Of for a pod that is there already. It reports whether the object is a pod.
func Into(obj any, pod *corev1.Pod) bool {
	switch obj := obj.(type) {
	case *Pod:
		obj.into(pod, nil)
		return true
	case *corev1.Pod:
		*pod = *obj
		return true
	default:
		return false
	}
}

// Scratch makes pods of many objects without any memory for them. It is for one goroutine.
type Scratch struct{ pod corev1.Pod }

// Of is like the function of that name, but the pod is another one after the next call.
func (s *Scratch) Of(obj any) *corev1.Pod {
	switch obj := obj.(type) {
	case *Pod:
		obj.into(&s.pod, s.pod.Status.Conditions[:0])
		return &s.pod
	case *corev1.Pod:
		return obj
	default:
		return nil
	}
}

// Key is the name of a pod that an informer holds. It reports whether the object is one.
func Key(obj any) (types.NamespacedName, bool) {
	switch obj := obj.(type) {
	case *Pod:
		return types.NamespacedName{Namespace: obj.alike.namespace, Name: obj.name}, true
	case *corev1.Pod:
		return types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, true
	default:
		return types.NamespacedName{}, false
	}
}

func (p *Pod) meta(m *metav1.ObjectMeta) {
	m.Name, m.Namespace, m.UID, m.ResourceVersion = p.name, p.alike.namespace, p.uid, p.resourceVersion
	m.Labels, m.Annotations, m.OwnerReferences = p.labels, p.annotations, p.alike.owners
	m.CreationTimestamp = at(p.created)
	if l := p.leaving; l != nil {
		m.Finalizers, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = l.finalizers, l.deleted, l.gracePeriod
	}
}

// into overwrites a pod. Its conditions are appended to those given.
func (p *Pod) into(pod *corev1.Pod, conditions []corev1.PodCondition) {
	*pod = corev1.Pod{}
	p.meta(&pod.ObjectMeta)
	s, a := &pod.Spec, p.alike
	s.NodeName = p.nodeName
	s.Priority, s.PriorityClassName, s.ServiceAccountName, s.SchedulerName = a.priority, a.priorityClass, a.serviceAccount, a.scheduler
	s.RestartPolicy, s.TerminationGracePeriodSeconds, s.SchedulingGroup, s.Volumes = a.restartPolicy, a.terminationGracePeriod, a.schedulingGroup, a.volumes
	s.EvictionResponders = a.evictionResponders
	pod.Status.Phase = p.phase
	conditions = slices.Grow(conditions, len(p.conditions))
	for _, c := range p.conditions {
		conditions = append(conditions, corev1.PodCondition{
			Type: c.kind, ObservedGeneration: c.observedGeneration, Status: c.status, Reason: c.reason, Message: c.message,
			LastProbeTime: at(c.probed), LastTransitionTime: at(c.changed),
		})
	}
	pod.Status.Conditions = conditions
}
