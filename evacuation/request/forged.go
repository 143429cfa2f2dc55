package request

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// If a finished request is untrue, someone else finished it: we write Evicted when the pod
// has ended, and Canceled when the eviction is no longer wanted or the pod cannot be
// evicted. The chart's policies let only us write these conditions; this check is for
// older requests, and for clusters without the policies. A final condition cannot be
// removed, so the request is deleted: requesters have to ask again anyway.

// untrue says what is wrong with the outcome of a finished request, "" if nothing is. Pods
// are read from memory, and live only to confirm.
func (r *Reconciler) untrue(ctx context.Context, er *v1alpha1.EvictionRequest) (string, error) {
	canceled := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled)
	switch {
	case meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted):
		runs, err := r.runs(ctx, er)
		if err != nil || !runs {
			return "", err
		}
		return "It says Evicted, but the pod runs", nil
	case canceled == nil || canceled.Status != metav1.ConditionTrue:
		return "", nil
	case canceled.Reason != v1alpha1.ReasonValidationFailed && !v1alpha1.IsUnwanted(er):
		// They cannot have come back: an empty list stays empty (ruling R3), unless the request
		// may not be canceled.
		return "It says Canceled, but has requesters, or an interceptor forbids it", nil
	default:
		return "", nil
	}
}

// runs reports whether the target exists and neither has ended nor is ending.
func (r *Reconciler) runs(ctx context.Context, er *v1alpha1.EvictionRequest) (bool, error) {
	ref := er.Spec.Target.Pod
	if ref == nil {
		return false, nil
	}
	key := types.NamespacedName{Namespace: er.Namespace, Name: ref.Name}
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		pod := &corev1.Pod{}
		if err := reader.Get(ctx, key, pod); err != nil {
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return false, fmt.Errorf("get pod %s: %w", key, err)
		}
		if pod.UID != ref.UID || pods.HasEnded(pod) || pod.DeletionTimestamp != nil {
			return false, nil
		}
	}
	return true, nil
}

// takeBack deletes a request whose outcome is untrue, in this version only.
func (r *Reconciler) takeBack(ctx context.Context, er *v1alpha1.EvictionRequest, why string) error {
	err := r.Client.Delete(ctx, er, client.Preconditions{UID: &er.UID, ResourceVersion: &er.ResourceVersion})
	if err != nil {
		return fmt.Errorf("delete EvictionRequest with an untrue outcome: %w", err)
	}
	event := events.OutcomeUntrue(why)
	log.FromContext(ctx).Info(event.Note, "event", event.Reason, "pod", podName(er))
	events.EmitOnBoth(r.Recorder, er, event)
	return nil
}

// withRoom removes conditions of others, the last ones first, if there is no room for
// ours. Only requests from before the limit have so many.
func withRoom(conditions []metav1.Condition) []metav1.Condition {
	foreign := 0
	return slices.DeleteFunc(conditions, func(c metav1.Condition) bool {
		if v1alpha1.IsOwnCondition(c.Type) {
			return false
		}
		foreign++
		return foreign > v1alpha1.MaxForeignConditions
	})
}
