package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
)

// The annotations of the descheduler that are taken off pods; see evacuation/request.
const (
	inProgressAnnotation = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	evictOnlyAnnotation  = "descheduler.alpha.kubernetes.io/request-evict-only"
)

// stop scales the manager to 0 and waits for its pods to end.
func (c *Cleaner) stop(ctx context.Context) error {
	if c.Deployment == "" {
		return nil
	}
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Deployment}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.call(ctx, func(ctx context.Context) error {
		scale := &autoscalingv1.Scale{}
		if err := c.Client.SubResource("scale").Get(ctx, deployment, scale); err != nil {
			return err
		}
		if scale.Spec.Replicas == 0 {
			return nil
		}
		scale.Spec.Replicas = 0
		if err := c.Client.SubResource("scale").Update(ctx, deployment, client.WithSubResourceBody(scale)); err != nil {
			return err
		}
		c.say("Deployment %s: scaled to 0", key)
		return nil
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("scale Deployment %s to 0: %w", key, err)
	}
	stopped, err := c.until(ctx, stopTimeout, func(ctx context.Context) (bool, error) {
		var now appsv1.Deployment
		err := c.call(ctx, func(ctx context.Context) error { return c.Client.Get(ctx, key, &now) })
		if err != nil {
			return client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
		}
		return now.Status.ObservedGeneration >= now.Generation && now.Status.Replicas == 0, nil
	})
	if err == nil && !stopped {
		err = fmt.Errorf("the pods of Deployment %s have not ended within %s", key, stopTimeout)
	}
	return err
}

// cleanPods takes off pods what Drawbridge wrote.
func (c *Cleaner) cleanPods(ctx context.Context) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	return c.each(ctx, list, func(ctx context.Context) error {
		var errs []error
		for i := range list.Items {
			if err := c.cleanPod(ctx, &list.Items[i]); err != nil {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// cleanPod cleans one pod: first it goes back to its ReplicaSet.
func (c *Cleaner) cleanPod(ctx context.Context, pod *metav1.PartialObjectMetadata) error {
	var errs []error
	if _, up := pod.Annotations[surge.HandedUpAnnotation]; up {
		if err := c.giveBack(ctx, client.ObjectKeyFromObject(pod)); err != nil {
			errs = append(errs, err)
		}
	}
	ops, what := marks(pod)
	if len(ops) == 0 {
		return errors.Join(errs...)
	}
	patch, err := json.Marshal(append([]op{sameUID(pod.UID)}, ops...))
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.call(ctx, func(ctx context.Context) error {
		return c.Client.Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch))
	})
	switch {
	case gone(err):
	case err != nil:
		errs = append(errs, fmt.Errorf("clean pod %s/%s: %w", pod.Namespace, pod.Name, err))
	default:
		c.say("Pod %s/%s: removed %s", pod.Namespace, pod.Name, strings.Join(what, ", "))
	}
	return errors.Join(errs...)
}

// giveBack gives a handed-up pod back to its ReplicaSet.
func (c *Cleaner) giveBack(ctx context.Context, pod types.NamespacedName) error {
	_, err := c.until(ctx, giveBackTimeout, func(ctx context.Context) (bool, error) {
		var returned surge.Returned
		err := c.call(ctx, func(ctx context.Context) (err error) {
			returned, err = surge.GiveBack(ctx, c.Client, pod)
			return err
		})
		switch {
		case err != nil:
			return false, err
		case returned == surge.ReturnedBack:
			c.say("Pod %s: given back to its ReplicaSet", pod)
		case returned == surge.ReturnedEvicted:
			c.say("Pod %s: evicted, its ReplicaSet is not the current one any more", pod)
		}
		return returned != surge.ReturnedLater, nil
	})
	return err
}

// marks are the operations that take our label and annotations off a pod. An
// annotation of the descheduler with another value is somebody else's.
func marks(pod *metav1.PartialObjectMetadata) (ops []op, what []string) {
	remove := func(kind, key, value string) {
		path := pointer(kind, key)
		ops = append(ops, op{"test", path, value}, op{Op: "remove", Path: path})
		what = append(what, key)
	}
	if value, ok := pod.Labels[v1alpha1.GuardLabel]; ok {
		remove("labels", v1alpha1.GuardLabel, value)
	}
	if value, ok := pod.Annotations[surge.FailedAnnotation]; ok {
		remove("annotations", surge.FailedAnnotation, value)
	}
	for _, key := range []string{inProgressAnnotation, evictOnlyAnnotation} {
		if value, ok := pod.Annotations[key]; ok && value == v1alpha1.GroupName {
			remove("annotations", key, value)
		}
	}
	return ops, what
}

// removeBudgets deletes the guard's budgets.
func (c *Cleaner) removeBudgets(ctx context.Context) error {
	list := &policyv1.PodDisruptionBudgetList{}
	return c.each(ctx, list, func(ctx context.Context) error {
		var errs []error
		for i := range list.Items {
			budget := &list.Items[i]
			if budget.Name != v1alpha1.GuardBudgetName {
				continue
			}
			err := c.call(ctx, func(ctx context.Context) error {
				return c.Client.Delete(ctx, budget, client.Preconditions{UID: &budget.UID})
			})
			switch {
			case err == nil:
				c.say("PodDisruptionBudget %s/%s: deleted", budget.Namespace, budget.Name)
			case !gone(err):
				errs = append(errs, fmt.Errorf("delete budget %s/%s: %w", budget.Namespace, budget.Name, err))
			}
		}
		return errors.Join(errs...)
	}, client.MatchingLabels{v1alpha1.GuardBudgetLabel: "true"})
}
