package podcache

import (
	"encoding/binary"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
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
	obj, err := Transform(obj)
	pod, ok := obj.(*corev1.Pod)
	if err != nil || !ok {
		return obj, err
	}
	pod.Labels, pod.Annotations = s.ofMap(pod.Labels), s.ofMap(pod.Annotations)
	pod.OwnerReferences = share(s.owners, pod.OwnerReferences, ownersKey)
	pod.Spec.Volumes = share(s.volumes, pod.Spec.Volumes, volumesKey)
	for _, text := range []*string{
		&pod.Namespace, &pod.Spec.NodeName, &pod.Spec.PriorityClassName, &pod.Spec.ServiceAccountName, &pod.Spec.SchedulerName,
		(*string)(&pod.Spec.RestartPolicy), (*string)(&pod.Status.Phase),
	} {
		*text = s.ofString(*text)
	}
	pod.Status.Conditions = slices.Clone(pod.Status.Conditions)
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		for _, text := range []*string{(*string)(&c.Type), (*string)(&c.Status), &c.Reason, &c.Message} {
			*text = s.ofString(*text)
		}
	}
	return pod, nil
}

// longest is how long a string may be to be shared, in bytes: longer ones are messages,
// which are seldom alike.
const longest = 128

func (s *Sharing) ofString(text string) string {
	if text == "" || len(text) > longest {
		return text
	}
	if known, ok := s.strings.Get(text); ok {
		return known.(string) //nolint:forcetypeassert // Only this function adds.
	}
	s.strings.Add(text, text)
	return text
}

func (s *Sharing) ofMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	var key []byte
	for _, name := range slices.Sorted(maps.Keys(m)) {
		key = appendText(key, name, m[name])
	}
	return remembered(s.labels, key, m)
}

func share[T any](cache *lru.Cache, values []T, keyOf func([]T) []byte) []T {
	if len(values) == 0 {
		return values
	}
	return remembered(cache, keyOf(values), values)
}

// remembered is the value of that key that came first.
func remembered[T any](cache *lru.Cache, key []byte, value T) T {
	text := string(key)
	if known, ok := cache.Get(text); ok {
		return known.(T) //nolint:forcetypeassert // A cache has values of one type.
	}
	cache.Add(text, value)
	return value
}

// appendText appends strings so that no two lists of them give the same bytes.
func appendText(key []byte, texts ...string) []byte {
	for _, text := range texts {
		key = binary.AppendUvarint(key, uint64(len(text)))
		key = append(key, text...)
	}
	return key
}

func ownersKey(owners []metav1.OwnerReference) []byte {
	var key []byte
	for i := range owners {
		o := &owners[i]
		key = appendText(key, o.APIVersion, o.Kind, o.Name, string(o.UID))
		key = append(key, tri(o.Controller), tri(o.BlockOwnerDeletion))
	}
	return key
}

// tri is a byte for each state of an optional bool.
func tri(value *bool) byte {
	switch {
	case value == nil:
		return 0
	case *value:
		return 1
	default:
		return 2
	}
}

// volumesKey is the key of slim volumes, which have a name and one kind.
func volumesKey(volumes []corev1.Volume) []byte {
	var key []byte
	for i := range volumes {
		key = appendText(key, volumes[i].Name)
		for _, kind := range kindsOf(&volumes[i]) {
			key = binary.AppendVarint(key, int64(kind)+1)
		}
		key = append(key, 0)
	}
	return key
}
