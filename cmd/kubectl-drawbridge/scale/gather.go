package scale

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// target is what is scaled.
type target struct {
	// kind is deployment or replicaSet.
	kind string
	// object is it as it was read.
	object   client.Object
	replicas int32
	// set has the pods.
	set *appsv1.ReplicaSet
}

// String is what kubectl calls it.
func (t *target) String() string { return t.kind + "/" + t.object.GetName() }

// getTarget reads what is scaled, and refuses what cannot be scaled in balance.
func getTarget(ctx context.Context, c *cli.Connection, kind, name string) (*target, error) {
	t := &target{kind: kind, object: &appsv1.Deployment{}}
	if kind == replicaSet {
		t.object = &appsv1.ReplicaSet{}
	}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, t.object); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no %s %q in namespace %q: see --namespace", kind, name, c.Namespace)
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", kind, name, err)
	}
	switch object := t.object.(type) {
	case *appsv1.ReplicaSet:
		if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
			return nil, fmt.Errorf("%s belongs to %s %s, which would undo it: scale that", t, owner.Kind, owner.Name)
		}
		t.set, t.replicas = object, ptr.Deref(object.Spec.Replicas, 1)
	case *appsv1.Deployment:
		var sets appsv1.ReplicaSetList
		if err := c.List(ctx, &sets, client.InNamespace(c.Namespace)); err != nil {
			return nil, fmt.Errorf("list replicasets: %w", err)
		}
		var err error
		if t.set, err = onlySet(object, sets.Items); err != nil {
			return nil, err
		}
		t.replicas = ptr.Deref(object.Spec.Replicas, 1)
	}
	return t, nil
}

// onlySet is the one ReplicaSet of a Deployment that has pods.
func onlySet(d *appsv1.Deployment, sets []appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	var with []*appsv1.ReplicaSet
	var names []string
	for i := range sets {
		set := &sets[i]
		if metav1.IsControlledBy(set, d) && (ptr.Deref(set.Spec.Replicas, 1) > 0 || set.Status.Replicas > 0) {
			with, names = append(with, set), append(names, set.Name)
		}
	}
	switch {
	case len(with) > 1:
		return nil, fmt.Errorf("deployment/%s is in the middle of a rollout, with pods of replicasets %s: wait until it is done (kubectl rollout status deployment/%s)", d.Name, strings.Join(names, " and "), d.Name)
	case d.Status.ObservedGeneration < d.Generation:
		return nil, fmt.Errorf("deployment/%s was just changed, and its controller has not seen it yet: try again in a moment", d.Name)
	case len(with) == 0:
		return nil, fmt.Errorf("deployment/%s has no pods", d.Name)
	}
	return with[0], nil
}

// gather reads what the decision depends on, and refuses what would make it worthless.
func (s *options) gather(ctx context.Context, c *cli.Connection, t *target) (*Input, error) {
	if len(t.set.Spec.Template.Spec.TopologySpreadConstraints) == 0 {
		return nil, fmt.Errorf("the pods of %s have no topology spread constraints, so there is no balance to keep: kubectl scale %s --replicas=%d", t, t, s.replicas)
	}
	var autoscalers autoscalingv2.HorizontalPodAutoscalerList
	if err := c.List(ctx, &autoscalers, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list horizontalpodautoscalers: %w", err)
	}
	for i := range autoscalers.Items {
		if scales(&autoscalers.Items[i], t) {
			return nil, fmt.Errorf("%s is scaled by HorizontalPodAutoscaler %s, which would undo it: change maxReplicas there, or delete it first", t, autoscalers.Items[i].Name)
		}
	}
	in := &Input{Template: t.set.Spec.Template, Wanted: int(s.replicas), Requested: map[types.UID]bool{}}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		in.Nodes = append(in.Nodes, &nodes.Items[i])
	}
	requests, err := s.RequestsIfAllowed(ctx, c, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	for i := range requests {
		if er := &requests[i]; er.Spec.Target.Pod != nil && !v1alpha1.IsFinished(er) {
			in.Requested[er.Spec.Target.Pod.UID] = true
		}
	}
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if active(pod, t.set) {
			in.Pods = append(in.Pods, pod)
		} else {
			in.Others = append(in.Others, pod)
		}
	}
	if len(in.Pods) != int(t.replicas) || ptr.Deref(t.set.Spec.Replicas, 1) != t.replicas {
		return nil, fmt.Errorf("%s has %d pods, and %d replicas are wanted at the moment: wait until it has settled, or use kubectl scale", t, len(in.Pods), t.replicas)
	}
	return in, nil
}

// active reports whether the pod is one that the ReplicaSet controller counts.
func active(pod *corev1.Pod, set *appsv1.ReplicaSet) bool {
	return metav1.IsControlledBy(pod, set) && pod.DeletionTimestamp == nil && !pods.HasEnded(pod)
}

// scales reports whether an autoscaler scales the target.
func scales(autoscaler *autoscalingv2.HorizontalPodAutoscaler, t *target) bool {
	ref := autoscaler.Spec.ScaleTargetRef
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return strings.EqualFold(ref.Kind, t.kind) && ref.Name == t.object.GetName() && group == appsv1.GroupName
}
