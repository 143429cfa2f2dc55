package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// fate is what a drain would do to a pod.
type fate struct {
	namespace, pod, node string
	// stays says why the pod stays; empty if it goes.
	stays string
	// interceptors come before the eviction.
	interceptors []string
}

// plan says what a drain would do, and asks the API server whether it would accept
// the maintenance.
func (d *drainOptions) plan(ctx context.Context, c *connection, m *v1alpha1.NodeMaintenance, nodes []string) error {
	// A drain of the same nodes may run already; that is no error of a dry run.
	if err := c.Create(ctx, m, client.DryRunAll, client.FieldOwner(fieldOwner)); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("create nodemaintenance %s: %w", m.Name, err)
	}
	d.tell(c.warnings)
	if d.output != "" {
		return d.printObject(m)
	}
	var registrations v1alpha1.EvictionInterceptorList
	if err := c.List(ctx, &registrations); err != nil {
		return fmt.Errorf("list evictioninterceptors: %w", err)
	}
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	registry := interceptor.RegistryOf(interceptor.RegistryOptions{Namespace: d.System}, registrations.Items, namespaces.Items)
	var fates []fate
	for _, node := range nodes {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return fmt.Errorf("list pods of node %s: %w", node, err)
		}
		for i := range pods.Items {
			fates = append(fates, fateOf(&pods.Items[i], registry))
		}
	}
	d.printPlan(nodes, fates)
	return nil
}

// fateOf is what a drain would do to the pod.
func fateOf(pod *corev1.Pod, who interceptor.Resolver) fate {
	f := fate{namespace: pod.Namespace, pod: pod.Name, node: pod.Spec.NodeName}
	owner := metav1.GetControllerOf(pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case mirror:
		f.stays = "static pod"
	case owner != nil && owner.Kind == "DaemonSet":
		f.stays = "DaemonSet " + owner.Name
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		f.stays = "has ended"
	default:
		f.interceptors = who.Interceptors(pod)
	}
	return f
}

// printPlan prints what would happen, by node, namespace and pod.
func (d *drainOptions) printPlan(nodes []string, fates []fate) {
	slices.SortFunc(fates, func(a, b fate) int {
		return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.namespace, b.namespace), strings.Compare(a.pod, b.pod))
	})
	t := newTable(d.Out)
	t.row("NODE", "NAMESPACE", "POD", "WOULD")
	going := 0
	for _, f := range fates {
		would := "be evicted at once, if its budget allows"
		switch {
		case f.stays != "":
			would = "stay: " + f.stays
		case len(f.interceptors) > 0:
			would = "be evicted after " + strings.Join(f.interceptors, ", then ")
		}
		if f.stays == "" {
			going++
		}
		t.row(f.node, f.namespace, f.pod, would)
	}
	must(t.Flush())
	fmt.Fprintf(d.Out, "\n%s would be cordoned, %s would go, %d would stay (dry run: nothing was changed)\n", counted(len(nodes), "node"), counted(going, "pod"), len(fates)-going)
}
