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
// registrations, the pod's namespace, its hooks and its budgets through the reader, which
// must not be a cache. Compiled registrations are reused. The Lookup knows what was listed.
func (r *Registry) ResolveLive(ctx context.Context, live client.Reader, pod *corev1.Pod) ([]string, Lookup, error) {
	registrations := &v1alpha1.EvictionInterceptorList{}
	if err := live.List(ctx, registrations); err != nil {
		return nil, nil, fmt.Errorf("list the registrations of interceptors live: %w", err)
	}
	namespaces := &corev1.NamespaceList{}
	// With a list, because the manager may only list namespaces.
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Namespace)
	if err := live.List(ctx, namespaces, client.MatchingFieldsSelector{Selector: name}); err != nil {
		return nil, nil, fmt.Errorf("list namespace %s live: %w", pod.Namespace, err)
	}
	hooks := &v1alpha1.EvacuationHookList{}
	if r.options.Hooks {
		if err := live.List(ctx, hooks, client.InNamespace(pod.Namespace)); err != nil {
			return nil, nil, fmt.Errorf("list the hooks of namespace %s live: %w", pod.Namespace, err)
		}
	}
	known, next := r.snapshot(), newSnapshot()
	if err := r.listBudgets(ctx, live, pod.Namespace, known, next); err != nil {
		return nil, nil, err
	}
	put := func(key string, from client.Object, compile func() *entry) {
		e, _, ok := known.known(key)
		if !ok || e.uid != from.GetUID() || e.generation != from.GetGeneration() {
			e = compile()
		}
		next.put(e)
	}
	for i := range registrations.Items {
		from := &registrations.Items[i]
		put(from.Name, from, func() *entry { return compileEntry(from, r.options.AllowedReserved) })
	}
	for i := range hooks.Items {
		from := &hooks.Items[i]
		put(hookKey(client.ObjectKeyFromObject(from)), from, func() *entry { return compileHook(from, r.options.Account) })
	}
	for i := range namespaces.Items {
		next.putNamespace(&namespaces.Items[i])
	}
	fresh := &Registry{options: r.options, annotated: r.annotated, memo: r.memo, next: next}
	fresh.current.Store(next)
	names, err := fresh.Resolve(pod)
	return names, fresh, err
}
