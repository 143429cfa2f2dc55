//go:build unix

package preemption

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// testLabel is on the nodes of a test; its value is the test's namespace.
const testLabel = "preemption.drawbridge.dev/test"

// must returns a value, or ends the test.
func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

var eventually = cluster.Eventually

// scene is a namespace with nodes of two CPUs each.
type scene struct {
	t         *testing.T
	namespace string
	nodes     []string
}

// newScene makes the test parallel.
func newScene(t *testing.T, nodes int) *scene {
	t.Helper()
	t.Parallel()
	return scenery(t, nodes)
}

func scenery(t *testing.T, nodes int) *scene {
	t.Helper()
	namespace := kube.Namespace(t)
	small := func(node *corev1.Node) {
		node.Labels[testLabel] = namespace
		node.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("2")
		node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2")
	}
	return &scene{t: t, namespace: namespace, nodes: must(kube.AddNodes(t.Context(), nodes, small))(t)}
}

func (s *scene) create(object client.Object) {
	s.t.Helper()
	cluster.Create(s.t, admin, object)
}

// class creates a PriorityClass; guard is its annotation, empty for none. The name is
// made unique.
func (s *scene) class(name string, value int32, guard string) *schedulingv1.PriorityClass {
	s.t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name}, Value: value}
	if guard != "" {
		class.Annotations = map[string]string{v1alpha1.AllowDisruptionAnnotation: guard}
	}
	s.create(class)
	s.t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := admin.Delete(context.Background(), class); err != nil {
			s.t.Errorf("delete class: %v", err)
		}
	})
	return class
}

// pod is one of the class that wants one CPU of the scene's nodes. The API server may
// learn of a class a moment later than we.
func (s *scene) pod(name string, class *schedulingv1.PriorityClass, change ...func(*builder.PodWrapper)) *corev1.Pod {
	s.t.Helper()
	w := builder.Pod(s.namespace, name).CPU("1").NodeSelector(testLabel, s.namespace).GracePeriod(0)
	w.Spec.PriorityClassName = class.Name
	for _, c := range change {
		c(w)
	}
	pod := w.Obj()
	eventually(s.t, "pod "+name+" to be created", func(ctx context.Context) error {
		err := admin.Create(ctx, pod)
		if apierrors.IsForbidden(err) {
			return err // No such PriorityClass yet.
		}
		if err != nil {
			s.t.Fatalf("create pod %s: %v", name, err)
		}
		if want := class.Annotations[v1alpha1.AllowDisruptionAnnotation]; pod.Annotations[v1alpha1.AllowDisruptionAnnotation] != want {
			// The policies' informer is another one.
			got := pod.Annotations[v1alpha1.AllowDisruptionAnnotation]
			if err := admin.Delete(ctx, pod); err != nil {
				s.t.Fatal(err)
			}
			pod = w.Clone().Obj()
			pod.UID, pod.ResourceVersion, pod.CreationTimestamp = "", "", metav1.Time{}
			return fmt.Errorf("it is stamped %q, want %q", got, want)
		}
		return nil
	})
	return pod
}

func labeled(app string) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) { w.Label(builder.AppLabel, app) }
}

func on(node string) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) { w.NodeSelector(corev1.LabelHostname, node) }
}

// running waits until the pod runs and is Ready, and returns it.
func (s *scene) running(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	return cluster.ReadyPod(s.t, admin, pod.Namespace, pod.Name)
}

// budget creates a budget for the pods of an application and waits until it allows so
// many disruptions.
func (s *scene) budget(app, minAvailable string, allowed int32) *policyv1.PodDisruptionBudget {
	s.t.Helper()
	pdb := builder.Budget(s.namespace, app).Selects(builder.AppLabel, app).MinAvailable(minAvailable).Obj()
	s.create(pdb)
	s.allows(pdb, allowed)
	return pdb
}

func (s *scene) allows(pdb *policyv1.PodDisruptionBudget, allowed int32) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("budget %s to allow %d", pdb.Name, allowed), func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pdb), pdb); err != nil {
			return err
		}
		if pdb.Status.ObservedGeneration != pdb.Generation || pdb.Status.DisruptionsAllowed != allowed {
			return fmt.Errorf("status %+v", pdb.Status)
		}
		return nil
	})
}

// relax changes what the budget demands and waits until it allows so many.
func (s *scene) relax(pdb *policyv1.PodDisruptionBudget, minAvailable string, allowed int32) {
	s.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"minAvailable":`+minAvailable+`}}`))
	if err := admin.Patch(s.t.Context(), pdb, patch); err != nil {
		s.t.Fatal(err)
	}
	s.allows(pdb, allowed)
}

// lives fails the test unless the very pod still runs and is not being deleted.
func (s *scene) lives(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		now := &corev1.Pod{}
		if err := admin.Get(s.t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			s.t.Errorf("pod %s: %v", pod.Name, err)
			continue
		}
		if now.UID != pod.UID || now.DeletionTimestamp != nil {
			s.t.Errorf("pod %s: want it to run on, got UID %s (was %s), deleted %v", pod.Name, now.UID, pod.UID, now.DeletionTimestamp)
		}
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				s.t.Errorf("pod %s was touched: %v", pod.Name, c)
			}
		}
	}
}

func (s *scene) gone(pod *corev1.Pod) {
	s.t.Helper()
	cluster.Gone(s.t, admin, pod)
}

// pending waits until the scheduler has tried to preempt for the pod and could not.
func (s *scene) pending(pod *corev1.Pod) {
	s.t.Helper()
	eventually(s.t, "pod "+pod.Name+" to stay Pending", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.Spec.NodeName != "" {
			s.t.Fatalf("pod %s is on %s", pod.Name, now.Spec.NodeName)
		}
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", now.Status.Conditions)
	})
}

// told waits for our event about the pod and returns its note.
func (s *scene) told(pod *corev1.Pod) string {
	s.t.Helper()
	var note string
	eventually(s.t, "event of "+pod.Name, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.UID == pod.UID && e.Reason == events.ReasonPreemptionNotAllowed {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("none of %d events", len(list.Items))
	})
	return note
}
