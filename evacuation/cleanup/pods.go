package cleanup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/deletioncost"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

// The annotations of the descheduler that are removed from pods; see
// evacuation/descheduler.
const (
	inProgressAnnotation = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	evictOnlyAnnotation  = "descheduler.alpha.kubernetes.io/request-evict-only"
)

// cleanPods removes what Drawbridge wrote to pods.
func (c *Cleaner) cleanPods(ctx context.Context) error {
	pods := func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		return list
	}
	return each(ctx, c, pods, func(ctx context.Context, list *metav1.PartialObjectMetadataList) error {
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
	patch, err := jsonpatch.Encode(append([]jsonpatch.Op{jsonpatch.TestUID(pod.UID)}, ops...))
	if err != nil {
		return err
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
		c.changedf("Pod %s/%s: removed %s", pod.Namespace, pod.Name, strings.Join(what, ", "))
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
			c.changedf("Pod %s: given back to its ReplicaSet", pod)
		case returned == surge.ReturnedEvicted:
			c.changedf("Pod %s: evicted, its ReplicaSet is not the current one any more", pod)
		}
		return returned != surge.ReturnedLater, nil
	})
	return err
}

// marks returns the operations that remove our label and annotations from a pod, and restore
// its deletion cost. An
// annotation of the descheduler with another value is not ours.
func marks(pod *metav1.PartialObjectMetadata) (ops []jsonpatch.Op, what []string) {
	remove := func(path, key, value string) {
		ops = append(ops, jsonpatch.Test(path, value), jsonpatch.Remove(path))
		what = append(what, key)
	}
	if value, ok := pod.Labels[v1alpha1.GuardLabel]; ok {
		remove(jsonpatch.Label(v1alpha1.GuardLabel), v1alpha1.GuardLabel, value)
	}
	if value, ok := pod.Annotations[surge.FailedAnnotation]; ok {
		remove(jsonpatch.Annotation(surge.FailedAnnotation), surge.FailedAnnotation, value)
	}
	if undo := deletioncost.Undo(pod.Annotations); undo != nil {
		ops, what = append(ops, undo...), append(what, deletioncost.FormerAnnotation, corev1.PodDeletionCost)
	}
	for _, key := range []string{inProgressAnnotation, evictOnlyAnnotation} {
		if value, ok := pod.Annotations[key]; ok && value == v1alpha1.GroupName {
			remove(jsonpatch.Annotation(key), key, value)
		}
	}
	return ops, what
}

// removeBudgets deletes the guard's budgets.
func (c *Cleaner) removeBudgets(ctx context.Context) error {
	budgets := func() *policyv1.PodDisruptionBudgetList { return &policyv1.PodDisruptionBudgetList{} }
	return each(ctx, c, budgets, func(ctx context.Context, list *policyv1.PodDisruptionBudgetList) error {
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
				c.changedf("PodDisruptionBudget %s/%s: deleted", budget.Namespace, budget.Name)
			case !gone(err):
				errs = append(errs, fmt.Errorf("delete budget %s/%s: %w", budget.Namespace, budget.Name, err))
			}
		}
		return errors.Join(errs...)
	}, client.MatchingLabels{v1alpha1.GuardBudgetLabel: "true"})
}
