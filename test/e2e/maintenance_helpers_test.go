//go:build unix

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// sharedEvacuationWait is how long the shared manager leaves pods without
// interceptors to their owners.
const sharedEvacuationWait = time.Second

// ofNamespace begins with a maintenance of the nodes that addNodes has added for the
// namespace. Its name is the namespace's and the suffix.
func ofNamespace(namespace, suffix string) *builder.NodeMaintenanceWrapper {
	return builder.NodeMaintenance(namespace+suffix).Term(testLabel, corev1.NodeSelectorOpIn, namespace)
}

// maintain creates a maintenance, which is gone at the end of the test.
func maintain(t *testing.T, w *builder.NodeMaintenanceWrapper) *v1alpha1.NodeMaintenance {
	t.Helper()
	m := w.Clone().Obj()
	create(t, m)
	t.Cleanup(func() { endMaintenance(t, m) })
	return m
}

// endMaintenance deletes a maintenance and waits until it is gone. It works at the end
// of a test, too.
func endMaintenance(t *testing.T, m *v1alpha1.NodeMaintenance) {
	t.Helper()
	ctx := context.Background()
	if err := admin.Delete(ctx, m.DeepCopy()); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete the maintenance: %v", err)
		return
	}
	err := cluster.Wait(ctx, "maintenance "+m.Name+" to be gone", func(ctx context.Context) error {
		now := &v1alpha1.NodeMaintenance{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(m), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("status %+v", now.Status)
	})
	if err != nil {
		t.Error(err)
	}
}

// change changes the spec of a maintenance.
func change(t *testing.T, m *v1alpha1.NodeMaintenance, how func(*v1alpha1.NodeMaintenanceSpec)) {
	t.Helper()
	eventually(t, "maintenance "+m.Name+" to be changed", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		how(&m.Spec)
		return admin.Update(ctx, m)
	})
}

// waitMaintenance waits until a maintenance is as wanted, and returns it.
func waitMaintenance(t *testing.T, m *v1alpha1.NodeMaintenance, what string, wanted func(*v1alpha1.NodeMaintenance) bool) *v1alpha1.NodeMaintenance {
	t.Helper()
	now := &v1alpha1.NodeMaintenance{}
	eventually(t, "maintenance "+m.Name+" to be "+what, func(ctx context.Context) error {
		*now = v1alpha1.NodeMaintenance{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(m), now); err != nil {
			return err
		}
		if now.Status.ObservedGeneration != now.Generation || !wanted(now) {
			return fmt.Errorf("generation %d, status %+v", now.Generation, now.Status)
		}
		return nil
	})
	return now
}

// inStage wants a maintenance to be in that stage.
func inStage(stage v1alpha1.MaintenanceStage) func(*v1alpha1.NodeMaintenance) bool {
	return func(m *v1alpha1.NodeMaintenance) bool { return m.Status.Stage == stage }
}

// drainedIs wants the condition Drained to be so.
func drainedIs(status metav1.ConditionStatus, reason string) func(*v1alpha1.NodeMaintenance) bool {
	return func(m *v1alpha1.NodeMaintenance) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionDrained)
		return c != nil && c.Status == status && c.Reason == reason
	}
}

// cordonIs is what a node says of its cordon and its maintenances.
type cordonIs struct {
	Unschedulable bool
	By, Stages    string
}

func cordonOf(node *corev1.Node) cordonIs {
	return cordonIs{node.Spec.Unschedulable, node.Annotations[v1alpha1.CordonAnnotation], node.Annotations[v1alpha1.MaintenancesAnnotation]}
}

// waitNode waits until a node is as wanted, and returns it.
func waitNode(t *testing.T, name string, want cordonIs) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	eventually(t, fmt.Sprintf("node %s to be %+v", name, want), func(ctx context.Context) error {
		*node = corev1.Node{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if got := cordonOf(node); got != want {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
	return node
}

// waitNodeEvent waits for an event about a node.
func waitNodeEvent(t *testing.T, node *corev1.Node, reason string) {
	t.Helper()
	waitEvent(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: node.Name, UID: node.UID}}, reason)
}

// podCondition is a condition of a pod; the zero value if it has none.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			c.LastTransitionTime, c.LastProbeTime = metav1.Time{}, metav1.Time{}
			return c
		}
	}
	return corev1.PodCondition{}
}

// waitCondition waits until the condition of a pod is as wanted.
func waitCondition(t *testing.T, pod *corev1.Pod, kind corev1.PodConditionType, want corev1.PodCondition) {
	t.Helper()
	eventually(t, fmt.Sprintf("condition %s of pod %s", kind, pod.Name), func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if got := podCondition(now, kind); got != want {
			return fmt.Errorf("it is %+v, want %+v", got, want)
		}
		return nil
	})
}

// evacuationRequested is the condition EvacuationRequest of a maintenance.
func evacuationRequested(reason string) corev1.PodCondition {
	return corev1.PodCondition{Type: v1alpha1.PodEvacuationRequest, Status: corev1.ConditionTrue, Reason: v1alpha1.PodReasonNodeMaintenance, Message: reason}
}

// setPodCondition writes a condition as a pod's owner would.
func setPodCondition(t *testing.T, pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, "the condition to be written", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		for i := range now.Status.Conditions {
			if now.Status.Conditions[i].Type == kind {
				now.Status.Conditions[i].Status, now.Status.Conditions[i].Reason = status, reason
				return admin.Status().Update(ctx, now)
			}
		}
		now.Status.Conditions = append(now.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason})
		return admin.Status().Update(ctx, now)
	})
}
