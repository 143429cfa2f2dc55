package listing

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// Responders are the names of a pod's native responders, in the order in which Kubernetes runs
// them: by priority, higher first, then by the domain from its end, then by the key. The one that
// stands for Drawbridge's own interceptors is left out.
func Responders(pod *corev1.Pod) []string {
	all := slices.Clone(pod.Spec.EvictionResponders)
	slices.SortStableFunc(all, func(a, b corev1.EvictionResponder) int {
		return CompareResponders(a.Name, a.Priority, b.Name, b.Priority)
	})
	var names []string
	for _, r := range all {
		if r.Name != v1alpha1.NativeResponder {
			names = append(names, r.Name)
		}
	}
	return names
}

// CompareResponders is that order.
func CompareResponders(a string, priorityA *int32, b string, priorityB *int32) int {
	domainA, keyA, _ := strings.Cut(a, "/")
	domainB, keyB, _ := strings.Cut(b, "/")
	return cmp.Or(cmp.Compare(ptr.Deref(priorityB, 0), ptr.Deref(priorityA, 0)),
		slices.Compare(reversed(domainA), reversed(domainB)), strings.Compare(keyA, keyB))
}

// reversed has the labels of a domain, the last one first.
func reversed(domain string) []string {
	parts := strings.Split(domain, ".")
	slices.Reverse(parts)
	return parts
}

// WithResponders is the name of an interceptor of the pod; behind that of its native responders
// stands who they are.
func WithResponders(interceptor string, pod *corev1.Pod) string {
	if interceptor != v1alpha1.NativeInterceptor || !pods.HasNativeResponders(pod) {
		return interceptor
	}
	return interceptor + " (" + strings.Join(Responders(pod), ", ") + ")"
}
