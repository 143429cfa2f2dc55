package podcache

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
)

// Sharing is the transform of a pod informer that stores equal values of many pods
// once: those of one ReplicaSet have the same labels, annotations, owner and volumes,
// which are more than half of what Transform keeps. It is safe because nobody may write
// to what an informer holds. The zero value is not ready; use NewSharing.
type Sharing struct {
	labels, owners, volumes, strings *lru.Cache
}

// shared is how many values of each sort are remembered. Forgotten values are just not
// shared with later pods; remembered values outlive their pods, so the limit bounds
// that, too (some megabytes). An informer's first list comes in the order of names, in
// which pods of one owner are neighbours.
const shared = 4096

// NewSharing returns an empty one.
func NewSharing() *Sharing {
	return &Sharing{labels: lru.New(shared), owners: lru.New(shared), volumes: lru.New(shared), strings: lru.New(shared)}
}

// Transform is podcache.Transform, with what is shared. It may be called from several
// goroutines. Like that one it does not write to the object, and never fails.
func (s *Sharing) Transform(obj any) (any, error) {
	whole, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod := reduced(whole)
	pod.Labels, pod.Annotations = s.ofMap(pod.Labels), s.ofMap(pod.Annotations)
	pod.OwnerReferences = s.ofOwners(pod.OwnerReferences)
	pod.Spec.Volumes = s.ofVolumes(pod.Spec.Volumes)
	for _, text := range [...]*string{
		&pod.Namespace, &pod.Spec.NodeName, &pod.Spec.PriorityClassName, &pod.Spec.ServiceAccountName, &pod.Spec.SchedulerName,
		(*string)(&pod.Spec.RestartPolicy), (*string)(&pod.Status.Phase),
	} {
		*text = s.ofString(*text)
	}
	pod.Status.Conditions = slices.Clone(pod.Status.Conditions)
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		for _, text := range [...]*string{(*string)(&c.Type), (*string)(&c.Status), &c.Reason, &c.Message} {
			*text = s.ofString(*text)
		}
	}
	return pod, nil
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
	return remembered(s.labels, hash(m), m, maps.Equal)
}

func (s *Sharing) ofOwners(owners []metav1.OwnerReference) []metav1.OwnerReference {
	if len(owners) == 0 {
		return owners
	}
	// The UID of the first says nearly all.
	return remembered(s.owners, maphash.String(seed, string(owners[0].UID)), owners, func(a, b []metav1.OwnerReference) bool {
		return slices.EqualFunc(a, b, sameOwner)
	})
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// ofVolumes are the names and kinds of volumes. Only those that are not known yet are made.
func (s *Sharing) ofVolumes(volumes []corev1.Volume) []corev1.Volume {
	if len(volumes) == 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range volumes {
		maphash.WriteComparable(&h, volumeName(&volumes[i]))
		for kind := range kindsOf(&volumes[i]) {
			maphash.WriteComparable(&h, kind)
		}
	}
	sum := h.Sum64()
	if known, ok := s.volumes.Get(sum); ok {
		//nolint:forcetypeassert // Only this function adds.
		if slim := known.([]corev1.Volume); slices.EqualFunc(slim, volumes, sameKind) {
			return slim
		}
	}
	slim := volumeKinds(volumes)
	s.volumes.Add(sum, slim)
	return slim
}

// sameKind compares a slim volume with a whole one.
func sameKind(slim, whole corev1.Volume) bool {
	if slim.Name != volumeName(&whole) {
		return false
	}
	a, b := reflect.ValueOf(&slim.VolumeSource).Elem(), reflect.ValueOf(&whole.VolumeSource).Elem()
	for f := range a.NumField() {
		if field := a.Field(f); field.Kind() == reflect.Pointer && field.IsNil() != b.Field(f).IsNil() {
			return false
		}
	}
	return true
}

// remembered is an equal value that came before, or else the value itself. Values of one
// key that are not equal are not shared for long, that is all.
func remembered[T any](cache *lru.Cache, key uint64, value T, equal func(a, b T) bool) T {
	if known, ok := cache.Get(key); ok {
		if known := known.(T); equal(known, value) { //nolint:forcetypeassert // A cache has values of one type.
			return known
		}
	}
	cache.Add(key, value)
	return value
}
