package vm

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// objectKey identifies an object of any kind.
type objectKey struct {
	kind schema.GroupKind
	types.NamespacedName
}

// indexedPod is a pod that was asked about.
type indexedPod struct {
	pod types.NamespacedName
	uid types.UID
}

// request is the EvictionRequest of the pod.
func (l indexedPod) request() types.NamespacedName {
	return types.NamespacedName{Namespace: l.pod.Namespace, Name: string(l.uid)}
}

// podIndex finds the pods that depend on a workload, so that a change of a workload
// wakes its pods. It is a hint: after a restart, all pods are asked about again.
type podIndex struct {
	mu         sync.Mutex
	byWorkload map[objectKey]map[indexedPod]bool
	byPod      map[indexedPod]map[objectKey]bool
}

func (i *podIndex) init() {
	i.byWorkload, i.byPod = map[objectKey]map[indexedPod]bool{}, map[indexedPod]map[objectKey]bool{}
}

// set notes the workload of a pod, one for each of its interceptors; the zero key is an
// unknown one. An entry lasts as long as the pod: an extra workload costs a check, a
// missing one a missed change.
func (i *podIndex) set(pod *corev1.Pod, workload objectKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	linked := indexedPod{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID}
	if i.byPod[linked] == nil {
		i.byPod[linked] = map[objectKey]bool{}
	}
	if workload == (objectKey{}) || i.byPod[linked][workload] {
		return
	}
	i.byPod[linked][workload] = true
	if i.byWorkload[workload] == nil {
		i.byWorkload[workload] = map[indexedPod]bool{}
	}
	i.byWorkload[workload][linked] = true
}

// forget forgets a pod that is gone.
func (i *podIndex) forget(pod *corev1.Pod) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drop(indexedPod{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID})
}

func (i *podIndex) drop(linked indexedPod) {
	for workload := range i.byPod[linked] {
		delete(i.byWorkload[workload], linked)
		if len(i.byWorkload[workload]) == 0 {
			delete(i.byWorkload, workload)
		}
	}
	delete(i.byPod, linked)
}

// has reports whether a workload of a pod is known.
func (i *podIndex) has(linked indexedPod) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.byPod[linked]) > 0
}

func (i *podIndex) of(workload objectKey) []indexedPod {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.byWorkload[workload]))
}

func (i *podIndex) all() []indexedPod {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.byPod))
}

// link notes which workload a pod depends on.
func (s *Store) link(sub *subject) {
	kind := sub.policy.workload
	if kind.Empty() {
		kind = podKind
	}
	s.index.set(sub.pod.Pod, objectKey{kind.GroupKind(), types.NamespacedName{Namespace: sub.pod.Namespace, Name: sub.name}})
}

// objectChanged is called from the informers.
func (s *Store) objectChanged(kind schema.GroupVersionKind, object *unstructured.Unstructured) {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	s.wake(s.index.of(objectKey{kind.GroupKind(), key}))
	for _, p := range s.all() {
		switch {
		case p.config != nil && p.configKind == kind:
			s.wakeAll()
		case p.migration != nil && p.migration.kind == kind:
			facts, err := p.migration.factsOf(context.Background(), object)
			if err == nil {
				key.Name = facts.Workload
				s.wake(s.index.of(objectKey{p.workloadKind(), key}))
			}
			s.policyChanged(p.name)
		}
	}
}

func (p *policy) workloadKind() schema.GroupKind {
	if p.workload.Empty() {
		return podKind.GroupKind()
	}
	return p.workload.GroupKind()
}

// podChanged is called with every pod that changed or was deleted.
func (s *Store) podChanged(pod *corev1.Pod, gone bool) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	linked := s.index.of(objectKey{podKind.GroupKind(), key})
	self := indexedPod{key, pod.UID}
	if s.index.has(self) && !slices.Contains(linked, self) {
		linked = append(linked, self)
	}
	if gone {
		s.index.forget(pod)
	}
	s.wake(linked)
}

func (s *Store) wakeAll() { s.wake(s.index.all()) }

// wake notifies the subscribers of pods that something may have changed for them.
func (s *Store) wake(linked []indexedPod) {
	if len(linked) == 0 {
		return // As for nearly every event of a pod.
	}
	s.mu.Lock()
	wakers, pods := slices.Clone(s.wakers), slices.Clone(s.pods)
	s.mu.Unlock()
	for _, l := range linked {
		for _, wake := range wakers {
			wake(l.request())
		}
		for _, emit := range pods {
			emit(l.pod)
		}
	}
}

func (s *Store) askReload() {
	s.mu.Lock()
	reload := s.reload
	s.mu.Unlock()
	reload()
}

func (s *Store) policiesChanged() {
	s.mu.Lock()
	subscribers := slices.Clone(s.policies)
	s.mu.Unlock()
	for _, f := range subscribers {
		f()
	}
}

// policyChanged notifies the subscribers of one policy.
func (s *Store) policyChanged(name string) {
	s.mu.Lock()
	subscribers := slices.Clone(s.changes)
	s.mu.Unlock()
	for _, f := range subscribers {
		f(name)
	}
}
