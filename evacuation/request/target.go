package request

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// targetView is what gather found under the target's name.
type targetView struct {
	process.Target
	// pod is the target itself, nil unless it is present.
	pod *corev1.Pod
	// foundUID is the UID of the pod that has the name, "" if there is none.
	foundUID types.UID
	// deadline is that of the requesters.
	deadline deadline
	// nodeSeen: the node was looked for, and loss is what was found.
	nodeSeen bool
	loss     translate.NodeLoss
	// seen is what this process remembers.
	seen observation
}

// findTarget finds the target. The cache may lag in both directions: a request can
// arrive before the event of its pod, and a pod of the same name can arrive late. So
// the cache is trusted if it has this pod, and a live GET confirms everything else
// before it becomes a verdict (statements 51, 52, 56 and 91). An error is never a
// verdict (statement 55).
func (r *Reconciler) findTarget(ctx context.Context, er *v1alpha1.EvictionRequest) (targetView, error) {
	ref := er.Spec.Target.Pod
	if ref == nil {
		// The schema refuses it; there is nothing to find.
		return targetView{Target: process.Target{Presence: process.Gone}}, nil
	}
	key := types.NamespacedName{Namespace: er.Namespace, Name: ref.Name}
	pod, found, err := pods.Incarnation(ctx, key, ref.UID, r.Client, r.APIReader)
	switch {
	case err != nil:
		return targetView{}, err
	case pod != nil:
		return presentTarget(pod), nil
	case found != "":
		return targetView{Target: process.Target{Presence: process.Replaced}, foundUID: found}, nil
	}
	return targetView{Target: process.Target{Presence: process.Gone}}, nil
}

func presentTarget(pod *corev1.Pod) targetView {
	return targetView{
		Target: process.Target{
			Presence: process.Present,
			Terminal: pods.HasEnded(pod),
			Deleting: pod.DeletionTimestamp != nil,
			Grouped:  pod.Spec.SchedulingGroup != nil,
		},
		pod:      pod,
		foundUID: pod.UID,
	}
}

// LiveWorkloadRef returns a function for Reconciler.WorkloadRef that reads the
// pod through the reader, which must not be a cache. Only Kubernetes 1.35 needs
// it: its spec.workloadRef is unknown to the types of later versions, where
// spec.schedulingGroup took its place (statement 53). A pod that is not found, or
// has another UID by now, has no reference.
func LiveWorkloadRef(reader client.Reader) func(ctx context.Context, pod types.NamespacedName, uid types.UID) (bool, error) {
	return func(ctx context.Context, key types.NamespacedName, uid types.UID) (bool, error) {
		pod := &unstructured.Unstructured{}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		if err := reader.Get(ctx, key, pod); err != nil {
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return false, fmt.Errorf("get pod %s for its workload: %w", key, err)
		}
		if pod.GetUID() != uid {
			return false, nil
		}
		_, found, err := unstructured.NestedMap(pod.Object, "spec", "workloadRef")
		if err != nil {
			return false, fmt.Errorf("read spec.workloadRef of pod %s: %w", key, err)
		}
		return found, nil
	}
}
