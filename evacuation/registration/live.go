package registration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// ResolveLive is Resolve for callers that suspect stale informers: it lists the
// registrations and the pod's namespace through the reader, which must not be a cache.
// Compiled registrations are reused.
func (r *Registry) ResolveLive(ctx context.Context, live client.Reader, pod *corev1.Pod) ([]string, error) {
	registrations := &v1alpha1.EvictionInterceptorList{}
	if err := live.List(ctx, registrations); err != nil {
		return nil, fmt.Errorf("list the registrations of interceptors live: %w", err)
	}
	namespaces := &corev1.NamespaceList{}
	// With a list, because the manager may only list namespaces.
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Namespace)
	if err := live.List(ctx, namespaces, client.MatchingFieldsSelector{Selector: name}); err != nil {
		return nil, fmt.Errorf("list namespace %s live: %w", pod.Namespace, err)
	}
	known, next := r.snapshot(), newSnapshot()
	for i := range registrations.Items {
		from := &registrations.Items[i]
		e, _, ok := known.known(from.Name)
		if !ok || e.uid != from.UID || e.generation != from.Generation {
			e = compileEntry(from, r.options.AllowedReserved)
		}
		next.put(e)
	}
	for i := range namespaces.Items {
		next.putNamespace(&namespaces.Items[i])
	}
	fresh := &Registry{options: r.options, annotated: r.annotated, next: next}
	fresh.current.Store(next)
	return fresh.Resolve(pod)
}
