package turns

import (
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
)

// Process is the eviction of one pod: by our API, by Kubernetes' own, or by both. One of the two
// may be nil.
type Process struct {
	Request  *v1alpha1.EvictionRequest
	Eviction *lifecyclev1alpha1.Eviction
}

// Processes are those of requests that say for which pod they are, each with the Eviction that
// counts for its pod, and then those of Evictions that run and have no such request.
func Processes(requests []*v1alpha1.EvictionRequest, evictions []*lifecyclev1alpha1.Eviction) []Process {
	native := ByPod(evictions)
	var all []Process
	for _, er := range requests {
		if er.Spec.Target.Pod == nil {
			continue
		}
		p := Process{Request: er}
		if e := native[er.Spec.Target.Pod.UID]; current(er, e) != nil {
			p.Eviction = e
			delete(native, er.Spec.Target.Pod.UID)
		}
		all = append(all, p)
	}
	for _, e := range evictions {
		if e.Spec.Target.Pod != nil && native[e.Spec.Target.Pod.UID] == e && Runs(e) {
			all = append(all, Process{Eviction: e})
		}
	}
	return all
}

// Pointers points to each of what was listed.
func Pointers[T any](all []T) []*T {
	found := make([]*T, 0, len(all))
	for i := range all {
		found = append(found, &all[i])
	}
	return found
}

// Pod is its name and UID.
func (p Process) Pod() (types.NamespacedName, types.UID) {
	if p.Request != nil {
		return types.NamespacedName{Namespace: p.Request.Namespace, Name: p.Request.Spec.Target.Pod.Name}, p.Request.Spec.Target.Pod.UID
	}
	return types.NamespacedName{Namespace: p.Eviction.Namespace, Name: p.Eviction.Spec.Target.Pod.Name}, p.Eviction.Spec.Target.Pod.UID
}

// Observe is the function Observe of both.
func (p Process) Observe() requester.Update { return Observe(p.Request, p.Eviction) }

// Turns are those of the pod, nil if that is not known, as Of tells them.
func (p Process) Turns(pod *corev1.Pod) []Turn { return Of(p.Request, p.Eviction, pod) }

// Requesters is the function Requesters of both.
func (p Process) Requesters() []string { return Requesters(p.Request, p.Eviction) }
