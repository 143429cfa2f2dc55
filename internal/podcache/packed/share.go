package packed

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
)

// Sharing is the transform of a pod informer that packs pods, and stores equal values of
// many pods once: those of one ReplicaSet have nearly the same labels, annotations and spec,
// and nearly all pods have the same conditions. It is safe because nobody may write to what
// an informer holds. The zero value is not ready; use NewSharing.
type Sharing struct {
	maps, alikes, statements, strings *lru.Cache
}

// shared is how many values of each sort are remembered. Forgotten values are just not
// shared with later pods; remembered values outlive their pods, so the limit bounds
// that, too (some megabytes). An informer's first list comes in the order of names, in
// which pods of one owner are neighbours.
const shared = 4096

// NewSharing returns an empty one.
func NewSharing() *Sharing {
	return &Sharing{maps: lru.New(shared), alikes: lru.New(shared), statements: lru.New(shared), strings: lru.New(shared)}
}

// Transform packs what podcache.Transform keeps. It may be called from several goroutines. Like
// that one it does not write to the object, and never fails.
func (s *Sharing) Transform(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	small := &Pod{
		name: pod.Name, uid: pod.UID, resourceVersion: pod.ResourceVersion, created: pod.CreationTimestamp.Unix(),
		labels: s.ofMap(pod.Labels), annotations: s.ofMap(pod.Annotations), alike: s.ofAlike(pod),
		nodeName: s.ofString(pod.Spec.NodeName), phase: corev1.PodPhase(s.ofString(string(pod.Status.Phase))),
	}
	if pod.Finalizers != nil || pod.DeletionTimestamp != nil || pod.DeletionGracePeriodSeconds != nil {
		small.leaving = &leaving{pod.Finalizers, pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds}
	}
	if len(pod.Status.Conditions) == 0 {
		return small, nil
	}
	small.conditions = make([]condition, len(pod.Status.Conditions))
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		small.conditions[i] = condition{s.ofStatement(c), c.LastProbeTime.Unix(), c.LastTransitionTime.Unix()}
	}
	return small, nil
}

// ofAlike is what the pod has in common with others. Only what is not known yet is made.
func (s *Sharing) ofAlike(pod *corev1.Pod) *alike {
	spec := &pod.Spec
	var h maphash.Hash
	h.SetSeed(seed)
	for _, text := range [...]string{pod.Namespace, spec.PriorityClassName, spec.ServiceAccountName, spec.SchedulerName, string(spec.RestartPolicy)} {
		maphash.WriteComparable(&h, text)
	}
	if len(pod.OwnerReferences) > 0 {
		maphash.WriteComparable(&h, pod.OwnerReferences[0].UID) // It says nearly all.
	}
	for i := range spec.Volumes {
		maphash.WriteComparable(&h, volumeName(&spec.Volumes[i]))
		for kind := range kindsOf(&spec.Volumes[i]) {
			maphash.WriteComparable(&h, kind)
		}
	}
	for i := range spec.EvictionResponders {
		maphash.WriteComparable(&h, spec.EvictionResponders[i].Name)
	}
	sum := h.Sum64()
	if known, ok := s.alikes.Get(sum); ok {
		if known := known.(*alike); known.is(pod) { //nolint:forcetypeassert // Only this function adds.
			return known
		}
	}
	made := &alike{
		namespace: s.ofString(pod.Namespace), owners: pod.OwnerReferences,
		priority: spec.Priority, priorityClass: s.ofString(spec.PriorityClassName), serviceAccount: s.ofString(spec.ServiceAccountName),
		scheduler: s.ofString(spec.SchedulerName), restartPolicy: corev1.RestartPolicy(s.ofString(string(spec.RestartPolicy))),
		terminationGracePeriod: spec.TerminationGracePeriodSeconds, schedulingGroup: spec.SchedulingGroup, volumes: VolumeKinds(spec.Volumes),
		evictionResponders: spec.EvictionResponders,
	}
	s.alikes.Add(sum, made)
	return made
}

// is reports whether it is what the pod has.
func (a *alike) is(pod *corev1.Pod) bool {
	spec := &pod.Spec
	return a.namespace == pod.Namespace && slices.EqualFunc(a.owners, pod.OwnerReferences, sameOwner) &&
		ptr.Equal(a.priority, spec.Priority) && a.priorityClass == spec.PriorityClassName && a.serviceAccount == spec.ServiceAccountName &&
		a.scheduler == spec.SchedulerName && a.restartPolicy == spec.RestartPolicy &&
		ptr.Equal(a.terminationGracePeriod, spec.TerminationGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.schedulingGroup, spec.SchedulingGroup) && slices.EqualFunc(a.volumes, spec.Volumes, sameKind) &&
		slices.EqualFunc(a.evictionResponders, spec.EvictionResponders, sameResponder)
}

// ofStatement is what a condition says.
func (s *Sharing) ofStatement(c *corev1.PodCondition) *statement {
	said := statement{kind: c.Type, observedGeneration: c.ObservedGeneration, status: c.Status, reason: c.Reason, message: c.Message}
	sum := maphash.Comparable(seed, said)
	if known, ok := s.statements.Get(sum); ok {
		if known := known.(*statement); *known == said { //nolint:forcetypeassert // Only this function adds.
			return known
		}
	}
	made := said // Only this one is on the heap.
	for _, text := range [...]*string{(*string)(&made.kind), (*string)(&made.status), &made.reason, &made.message} {
		*text = s.ofString(*text)
	}
	s.statements.Add(sum, &made)
	return &made
}

// usual strings need no cache, which is most of them.
var usual = func() map[string]string {
	m := map[string]string{}
	for _, text := range []string{
		string(corev1.PodPending), string(corev1.PodRunning), string(corev1.PodSucceeded), string(corev1.PodFailed),
		string(corev1.RestartPolicyAlways), string(corev1.RestartPolicyOnFailure), string(corev1.RestartPolicyNever),
		string(corev1.PodScheduled), string(corev1.PodInitialized), string(corev1.ContainersReady), string(corev1.PodReady),
		string(corev1.PodReadyToStartContainers), string(corev1.DisruptionTarget),
		string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown),
		corev1.DefaultSchedulerName, "default",
	} {
		m[text] = text
	}
	return m
}()

// longest is how long a string may be to be shared, in bytes: longer ones are messages,
// which are seldom alike.
const longest = 128

func (s *Sharing) ofString(text string) string {
	if text == "" || len(text) > longest {
		return text
	}
	if same, ok := usual[text]; ok {
		return same
	}
	if known, ok := s.strings.Get(text); ok {
		return known.(string) //nolint:forcetypeassert // Only this function adds.
	}
	s.strings.Add(text, text)
	return text
}

// seed of all hashes: they are for this process only.
var seed = maphash.MakeSeed()

// hash of a map does not depend on the order.
func hash(m map[string]string) (sum uint64) {
	for key, value := range m {
		sum += bits.RotateLeft64(maphash.String(seed, key), 1) * (maphash.String(seed, value) | 1)
	}
	return sum
}

func (s *Sharing) ofMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	sum := hash(m)
	if known, ok := s.maps.Get(sum); ok {
		if known := known.(map[string]string); maps.Equal(known, m) { //nolint:forcetypeassert // Only this function adds.
			return known
		}
	}
	s.maps.Add(sum, m)
	return m
}

func sameResponder(a, b corev1.EvictionResponder) bool {
	return a.Name == b.Name && ptr.Equal(a.Priority, b.Priority)
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}
