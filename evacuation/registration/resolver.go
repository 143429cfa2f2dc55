// Package registration resolves the interceptors of a pod, from the pod's annotation and
// responders, from EvictionInterceptors, from EvacuationHooks and from EvictionBudgets. It writes the
// status of EvictionInterceptors and counts the pods of these and of hooks.
package registration

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Resolver returns the interceptors of a pod.
//
// It is only used until an EvictionRequest of the pod exists; then its frozen
// status.targetInterceptors apply (statement 73). A resolver sees the pod as the
// informer cache keeps it (internal/podcache) and must answer from memory, because it
// is called during admission. It is safe for concurrent use. There are two:
// FromAnnotation, and Registry, which merges the annotation with all registrations.
type Resolver interface {
	// Resolve returns the names in the order in which they run, at most
	// v1alpha1.MaxPodInterceptors and each once. Empty means that the pod has no
	// interceptors. The default interceptor imperative-eviction.k8s.io is never in the
	// answer; the request controller appends it. An error means that a name may be
	// missing: retry later, and neither allow an eviction nor make a plan.
	Resolve(pod *corev1.Pod) ([]string, error)
}

// FromAnnotation returns the resolver over the pod's annotation
// drawbridge.dev/interceptors. Invalid entries are ignored. Names reserved for
// Kubernetes count only if they are in allowReserved (ruling R14), those of hooks,
// budgets and native responders never: it knows none.
func FromAnnotation(allowReserved ...string) Resolver {
	return annotation{allowReserved: allowReserved}
}

var _ Resolver = annotation{}

type annotation struct {
	allowReserved []string
}

// Resolve never fails: the pod is the only input.
func (a annotation) Resolve(pod *corev1.Pod) ([]string, error) {
	return slices.DeleteFunc(a.names(pod), isBuiltIn), nil
}

// names are all, with those of hooks, budgets and native responders.
func (a annotation) names(pod *corev1.Pod) []string {
	value, ok := pod.Annotations[v1alpha1.InterceptorsAnnotation]
	if !ok {
		return nil
	}
	names, _ := translate.ParseInterceptors(value, a.allowReserved...)
	return names
}
