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

// linkedPod is a pod that was asked about.
type linkedPod struct {
	pod types.NamespacedName
	uid types.UID
}

// request is the EvictionRequest of the pod.
func (l linkedPod) request() types.NamespacedName {
	return types.NamespacedName{Namespace: l.pod.Namespace, Name: string(l.uid)}
}

// links remember which pods depend on which workload, so that a change of a workload
// wakes its pods. They are a hint: after a restart, all pods are asked about again.
type links struct {
	mu         sync.Mutex
	byWorkload map[objectKey]map[linkedPod]bool
	byPod      map[linkedPod]map[objectKey]bool
}

func (l *links) init() {
	l.byWorkload, l.byPod = map[objectKey]map[linkedPod]bool{}, map[linkedPod]map[objectKey]bool{}
}

// set links a pod with a workload, one for each of its interceptors; the zero key is an
// unknown one. A link lasts as long as the pod: an extra workload costs a check, a
// missing one a missed change.
func (l *links) set(pod *corev1.Pod, workload objectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	linked := linkedPod{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID}
	if l.byPod[linked] == nil {
		l.byPod[linked] = map[objectKey]bool{}
	}
	if workload == (objectKey{}) || l.byPod[linked][workload] {
		return
	}
	l.byPod[linked][workload] = true
	if l.byWorkload[workload] == nil {
		l.byWorkload[workload] = map[linkedPod]bool{}
	}
	l.byWorkload[workload][linked] = true
}

// forget forgets a pod that is gone.
func (l *links) forget(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(linkedPod{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID})
}

func (l *links) drop(linked linkedPod) {
	for workload := range l.byPod[linked] {
		delete(l.byWorkload[workload], linked)
		if len(l.byWorkload[workload]) == 0 {
			delete(l.byWorkload, workload)
		}
	}
	delete(l.byPod, linked)
}

// has reports whether a workload of a pod is known.
func (l *links) has(linked linkedPod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byPod[linked]) > 0
}

func (l *links) of(workload objectKey) []linkedPod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.byWorkload[workload]))
}

func (l *links) all() []linkedPod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.byPod))
}

// link notes which workload a pod depends on.
func (s *Store) link(sub *subject) {
	kind := sub.policy.workload
	if kind.Empty() {
		kind = podKind
	}
	s.links.set(sub.pod.Pod, objectKey{kind.GroupKind(), types.NamespacedName{Namespace: sub.pod.Namespace, Name: sub.name}})
}

// objectChanged is called from the informers.
func (s *Store) objectChanged(kind schema.GroupVersionKind, object *unstructured.Unstructured) {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	s.wake(s.links.of(objectKey{kind.GroupKind(), key}))
	for _, p := range s.all() {
		switch {
		case p.config != nil && p.configKind == kind:
			s.wakeAll()
		case p.migration != nil && p.migration.kind == kind:
			facts, err := p.migration.factsOf(context.Background(), object)
			if err == nil {
				key.Name = facts.Workload
				s.wake(s.links.of(objectKey{p.workloadKind(), key}))
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
	linked := s.links.of(objectKey{podKind.GroupKind(), key})
	self := linkedPod{key, pod.UID}
	if s.links.has(self) && !slices.Contains(linked, self) {
		linked = append(linked, self)
	}
	if gone {
		s.links.forget(pod)
	}
	s.wake(linked)
}

func (s *Store) wakeAll() { s.wake(s.links.all()) }

// wake notifies the subscribers of pods that something may have changed for them.
func (s *Store) wake(linked []linkedPod) {
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
