// Package registration answers who intercepts the eviction of a pod, by the pod's
// annotation and by EvictionInterceptors, and writes the status of those.
package registration

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Resolver answers who intercepts the eviction of a pod.
//
// An answer is only asked for until an EvictionRequest of the pod exists; from
// then on its frozen status.targetInterceptors count (statement 73). A resolver
// sees the pod as the informer cache keeps it (internal/podcache) and must answer
// from memory, as it is asked in the middle of admission. It is safe for
// concurrent use. There are two: FromAnnotation, and the Registry, which merges the
// annotation with all registrations.
type Resolver interface {
	// Resolve returns the names in the order in which they run, at most
	// v1alpha1.MaxPodInterceptors and each once. None means that nobody intercepts
	// the pod. The default interceptor imperative-eviction.k8s.io is never in the
	// answer; the request controller appends it. An error means that somebody may be
	// missing among the names: ask again later, let nobody pass and plan nothing.
	Resolve(pod *corev1.Pod) ([]string, error)
}

// FromAnnotation returns the resolver over the pod's annotation
// drawbridge.dev/interceptors. Entries that cannot be read are left out. Names
// reserved for Kubernetes count only if they stand in allowReserved (ruling R14).
func FromAnnotation(allowReserved ...string) Resolver {
	return annotation{allowReserved: allowReserved}
}

var _ Resolver = annotation{}

type annotation struct {
	allowReserved []string
}

// Resolve never fails: the pod has the whole answer.
func (a annotation) Resolve(pod *corev1.Pod) ([]string, error) {
	return a.names(pod), nil
}

func (a annotation) names(pod *corev1.Pod) []string {
	value, ok := pod.Annotations[v1alpha1.InterceptorsAnnotation]
	if !ok {
		return nil
	}
	names, _ := translate.ParseInterceptors(value, a.allowReserved...)
	return names
}
