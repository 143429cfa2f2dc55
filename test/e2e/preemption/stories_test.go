//go:build unix

package preemption

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// podsOf waits until an application has so many pods that are Ready.
func (s *scene) podsOf(app string, n int) []*corev1.Pod {
	s.t.Helper()
	var ready []*corev1.Pod
	eventually(s.t, fmt.Sprintf("%d pods of %s to be Ready", n, app), func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(s.namespace), client.MatchingLabels{builder.AppLabel: app}); err != nil {
			return err
		}
		ready = nil
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready = append(ready, &list.Items[i])
				}
			}
		}
		if len(ready) != n {
			return fmt.Errorf("%d of %d", len(ready), len(list.Items))
		}
		return nil
	})
	return ready
}

// Story 1: "User deployed a service in a cluster and to ensure its high availability,
// User created PDB for this deployment and set .spec.minAvailable to 3. User wanted the
// PDB to be guaranteed even in case of scheduler preemption".
func TestStory1AServiceKeepsThreeOfItsPods(t *testing.T) {
	s := newScene(t, 2)
	class := s.class("service", 100, "100000")
	s.running(s.pod("first", class)) // By now the API server knows the class.
	if err := admin.Delete(t.Context(), builder.Pod(s.namespace, "first").Obj()); err != nil {
		t.Fatal(err)
	}
	deployment := builder.Deployment(s.namespace, "shop").Replicas(4).Obj()
	s.inTemplate(&deployment.Spec.Template, class.Name)
	s.create(deployment)
	s.podsOf("shop", 4)
	pdb := s.budget("shop", "3", 1)

	// One may go, and goes.
	high := s.class("batch", 5000, "")
	s.running(s.pod("first-batch", high))
	var left []*corev1.Pod
	eventually(t, "three pods of the service", func(context.Context) error {
		left = s.podsOf("shop", 3)
		return nil
	})
	s.allows(pdb, 0) // The budget's controller counts a moment later.
	// A second one may not.
	second := s.pod("second-batch", high)
	s.pending(second)
	s.told(second)
	s.lives(left...)
	var now appsv1.Deployment
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(deployment), &now); err != nil {
		t.Fatal(err)
	}
	if now.Status.AvailableReplicas < 3 {
		t.Errorf("%d replicas are available, want 3", now.Status.AvailableReplicas)
	}
}

// Story 2: "User created a Tensorflow distributed job that requires a minimum of 5
// workers running. User created PDB for the job and set .spec.minAvailable to 5. User
// wanted the PDB to be guaranteed even in case of scheduler preemption to ensure the
// stability of the whole job".
func TestStory2ADistributedJobKeepsItsFiveWorkers(t *testing.T) {
	s := newScene(t, 3)
	class := s.class("training", 100, "100000")
	s.running(s.pod("first", class, withCPU("500m")))
	if err := admin.Delete(t.Context(), builder.Pod(s.namespace, "first").Obj()); err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "train"},
		Spec:       batchv1.JobSpec{Parallelism: ptr.To[int32](5), Completions: ptr.To[int32](5)},
	}
	w := builder.Pod(s.namespace, "").Label(builder.AppLabel, "train").Annotation("test.drawbridge.dev/complete-after", "1h")
	job.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: w.ObjectMeta, Spec: w.Spec}
	job.Spec.Template.Namespace = ""
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.inTemplate(&job.Spec.Template, class.Name)
	s.create(job)
	workers := s.podsOf("train", 5)
	s.budget("train", "5", 0)

	// One CPU is free, two are wanted.
	preemptor := s.pod("urgent", s.class("urgent", 50000, ""), withCPU("2"))
	s.pending(preemptor)
	s.told(preemptor)
	s.lives(workers...)
	// What the cluster needs to run may always.
	s.running(s.pod("critical", s.class("critical", 100000, ""), withCPU("2")))
}
