//go:build unix

package ha

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// The leader dies while the Jobs of a hook run. The other replica takes over, finds them,
// and begins those that were not begun: there is one for each pod.
func TestTheOtherReplicaGoesOnWithHooks(t *testing.T) {
	inst := installed(t, nil)
	s := inst.NewService(t)
	replicas := []*manager.Process{s.Replica(t), s.Replica(t)}
	namespace := kube.Namespace(t)
	pods := make([]*corev1.Pod, 7) // More than run at a time.
	for i := range pods {
		pods[i] = createPod(t, builder.Pod(namespace, fmt.Sprintf("ledger-%d", i)).Obj())
	}
	hook := builder.EvacuationHook(namespace, "dump").Generation(0).Job(`{"spec": {"template": {
		"metadata": {"annotations": {"` + cluster.CompleteAfterAnnotation + `": "2s"}},
		"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example.com/job:1"}]}
	}}}`).Obj()
	mark := kube.RequestLog().Mark()
	eventually(t, "the hook to be created", func(ctx context.Context) error { return admin.Create(ctx, hook) })
	eventually(t, "the hook to cover the pods", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
			return err
		}
		if hook.Status.MatchingPods == nil || *hook.Status.MatchingPods != int32(len(pods)) {
			return fmt.Errorf("its status is %+v", hook.Status)
		}
		return nil
	})

	leads, _ := leader(t, replicas...)
	for _, pod := range pods {
		eventually(t, "the eviction of "+pod.Name+" to be answered", func(ctx context.Context) error {
			if err := evict(ctx, pod, false); !apierrors.IsTooManyRequests(err) {
				return fmt.Errorf("got %w, want 429", err)
			}
			return nil
		})
	}
	requests := map[string]*v1alpha1.EvictionRequest{}
	for _, pod := range pods {
		er := &v1alpha1.EvictionRequest{}
		if err := admin.Get(t.Context(), v1alpha1.RequestKey(pod), er); err != nil {
			t.Fatal(err)
		}
		requests[pod.Name] = er
	}
	eventually(t, "some Jobs", func(ctx context.Context) error {
		jobs := &batchv1.JobList{}
		if err := admin.List(ctx, jobs, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(jobs.Items) < 3 {
			return fmt.Errorf("%d so far", len(jobs.Items))
		}
		return nil
	})
	if err := leads.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all pods to go", func(ctx context.Context) error {
		var errs []error
		for _, pod := range pods {
			switch err := evict(ctx, pod, false); {
			case apierrors.IsNotFound(err):
			case err == nil:
				errs = append(errs, fmt.Errorf("pod %s goes", pod.Name))
			default:
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})

	var want, got []string
	for _, er := range requests {
		want = append(want, v1alpha1.HookJobName(hook.Name, er.UID, 1))
	}
	slices.Sort(want)
	// They are there as long as the requests.
	jobs := &batchv1.JobList{}
	if err := admin.List(t.Context(), jobs, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs.Items {
		got = append(got, job.Name)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	// Of a creation whose client was killed the log may say that it failed, so there may be
	// fewer.
	created := map[string]bool{}
	for _, r := range must(kube.RequestLog().Since(t.Context(), mark))(t) {
		if r.Verb == "create" && r.Resource == "jobs" && r.Namespace == namespace && r.Code == http.StatusCreated && !r.DryRun {
			if created[r.Name] {
				t.Errorf("Job %s was created twice", r.Name)
			}
			created[r.Name] = true
		}
	}
}
