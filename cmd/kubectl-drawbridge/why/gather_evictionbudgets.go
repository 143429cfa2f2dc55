package why

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// maxNodes is how many nodes are read to learn the groups of pods.
const maxNodes = 20

// gatherUnavailable reads what may be in the way while it is the turn of the EvictionBudgets.
func (g gatherer) gatherUnavailable(ctx context.Context, f *Facts) {
	if f.Request == nil || !slices.Contains(f.Request.Status.ActiveInterceptors, v1alpha1.BudgetInterceptor) {
		return
	}
	now := g.Clock.Now()
	byNode := false
	found := map[string]corev1.Pod{}
	for _, b := range budgetstatus.Covering(f.Pod, f.EvictionBudgets) {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // Then it would not cover the pod.
		}
		var list corev1.PodList
		if !read(f, "pods", g.List(ctx, &list, client.InNamespace(f.Pod.Namespace), client.MatchingLabelsSelector{Selector: selector})) {
			return
		}
		for _, pod := range list.Items {
			if !pods.HasEnded(&pod) && budgetstatus.Unavailable(b, &pod, now) != "" {
				found[pod.Name] = pod
			}
		}
		byNode = byNode || b.Spec.GroupBy != nil && b.Spec.GroupBy.NodeLabel != ""
	}
	for _, pod := range found {
		f.Unavailable = append(f.Unavailable, pod)
	}
	if byNode {
		g.gatherNodes(ctx, f)
	}
}

// gatherNodes reads the nodes of the pods that are not available.
func (g gatherer) gatherNodes(ctx context.Context, f *Facts) {
	names := map[string]bool{}
	for i := range f.Unavailable {
		if name := f.Unavailable[i].Spec.NodeName; name != "" && len(names) < maxNodes {
			names[name] = true
		}
	}
	for name := range names {
		node := &corev1.Node{}
		if !read(f, "node "+name, client.IgnoreNotFound(g.Get(ctx, client.ObjectKey{Name: name}, node))) {
			return // The others cannot be read either.
		}
		if node.Name != "" {
			f.Nodes = append(f.Nodes, *node)
		}
	}
}
