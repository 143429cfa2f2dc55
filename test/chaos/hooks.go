//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// createHook makes the EvacuationHook of a workload. Its Jobs run on the node that is never
// drained, also in the finale.
func (r *run) createHook(ctx context.Context, workload *Workload) error {
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cluster.CompleteAfterAnnotation: workload.Interceptors[0].Work.String()}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			NodeSelector:  map[string]string{corev1.LabelHostname: r.nodes[Nodes-1]},
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:    []corev1.Container{{Name: "main", Image: "registry.example.com/job:1"}},
		},
	}
	template, err := json.Marshal(map[string]any{"spec": map[string]any{"template": pod}})
	if err != nil {
		return fmt.Errorf("encode the Job of %s: %w", workload.Name, err)
	}
	hook := builder.EvacuationHook(r.namespace, workload.Name).Pods(builder.AppLabel, workload.Name).Job(string(template))
	hook.EvacuationHook.Generation = 0
	if r.history.Plan.Mode == ModeAlways {
		hook.Guard(v1alpha1.GuardAlways)
	}
	object := hook.Obj()
	r.history.Names[workload.Name] = []string{v1alpha1.HookInterceptor(client.ObjectKeyFromObject(object))}
	if err := r.world.admin.Create(ctx, object); err != nil {
		return fmt.Errorf("create hook %s: %w", workload.Name, err)
	}
	return r.await(ctx, "hook "+workload.Name, func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("conditions %+v", object.Status.Conditions)
		}
		return nil
	})
}

// ofHook reports whether a pod belongs to the Job of a hook, which nobody of a run touches.
func ofHook(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.HookLabel] != "" }

// finishedJob is the entry of a hook's Job in the ledger; not ok until Kubernetes says that it
// has done its work.
func finishedJob(job *batchv1.Job) (Entry, bool) {
	for _, condition := range job.Status.Conditions {
		done := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobSuccessCriteriaMet
		owner := slices.IndexFunc(job.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "EvictionRequest" })
		if done && condition.Status == corev1.ConditionTrue && owner >= 0 {
			return Entry{
				At: condition.LastTransitionTime.Time, Deed: Finished, Request: job.OwnerReferences[owner].UID,
				Interceptor: v1alpha1.HookInterceptor(types.NamespacedName{Namespace: job.Namespace, Name: job.Labels[v1alpha1.HookLabel]}),
			}, true
		}
	}
	return Entry{}, false
}
