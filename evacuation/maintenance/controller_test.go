package maintenance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestAMaintenanceFromItsBeginningToItsEnd(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	if diff := cmp.Diff(map[string]string{"node-maintenances": "kernel=Drain", "node-cordon": "maintenance", "node-maintenance-phase": "Drain", "unschedulable": "true"}, w.annotations("n1")); diff != "" {
		t.Errorf("node while it is drained (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"kernel.node-maintenance.drawbridge.dev"}, w.requesters(pod)); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"EvacuationRequest=True NodeMaintenance"}, w.conditions(pod)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	w.remove(w.pods[client.ObjectKeyFromObject(pod)])
	w.settle(t)
	status := w.plan("kernel").Status
	want := v1alpha1.MaintenanceProgress{Nodes: 1, NodesCordoned: 1, NodesDrained: 1, PodsEvacuated: 1}
	if diff := cmp.Diff(want, status.Progress); diff != "" || status.Stage != drained {
		t.Errorf("stage %s, progress (-want +got):\n%s", status.Stage, diff)
	}
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Cordon, m.Spec.Drain = false, false })
	w.settle(t)
	if diff := cmp.Diff(map[string]string{}, w.annotations("n1")); diff != "" || w.plan("kernel").Status.Stage != complete {
		t.Errorf("stage %s, node at the end (-want +got):\n%s", w.plan("kernel").Status.Stage, diff)
	}
	events := []string{"NodeCordoned", "MaintenanceStage", "NodeUncordoned", "MaintenanceStage"}
	told := slices.Compact(w.told())
	if !isSubsequence(events, told) {
		t.Errorf("events %v, want %v among them in this order", told, events)
	}
}

func isSubsequence(want, got []string) bool {
	for _, one := range got {
		if len(want) > 0 && one == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// The finalizer stays until the nodes are released and the requests withdrawn.
func TestDeletionReleasesEverything(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
	w.settle(t)
	if m := w.plan("kernel"); m != nil {
		t.Errorf("it is still there: %+v", m)
	}
	if diff := cmp.Diff(map[string]string{}, w.annotations("n1")); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if got := w.requesters(pod); len(got) > 0 {
		t.Errorf("requesters %v, want none", got)
	}
	if got := w.conditions(pod); len(got) > 0 {
		t.Errorf("conditions %v, want none", got)
	}
}

// Somebody has removed the finalizer: what is left of the maintenance is released.
func TestAMaintenanceThatIsGoneIsReleased(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	w.remove(w.plan("kernel"))
	w.settle(t)
	if diff := cmp.Diff(map[string]string{}, w.annotations("n1")); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if got := w.requesters(pod); len(got) > 0 {
		t.Errorf("requesters %v, want none", got)
	}
	if got := w.conditions(pod); len(got) > 0 {
		t.Errorf("conditions %v, want none", got)
	}
}

// Each of two maintenances asks for itself; conditions and cordon stay until the last
// one leaves.
func TestTwoMaintenancesShareANode(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.put(drainOf("rack"))
	w.settle(t)
	got := w.requesters(pod)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"kernel.node-maintenance.drawbridge.dev", "rack.node-maintenance.drawbridge.dev"}, got); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain, m.Spec.Cordon = false, false })
	w.settle(t)
	if diff := cmp.Diff([]string{"rack.node-maintenance.drawbridge.dev"}, w.requesters(pod)); diff != "" {
		t.Errorf("requesters after the first one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"node-maintenances": "rack=Drain", "node-cordon": "maintenance", "node-maintenance-phase": "Drain", "unschedulable": "true"}, w.annotations("n1")); diff != "" {
		t.Errorf("node after the first one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"EvacuationRequest=True NodeMaintenance"}, w.conditions(pod)); diff != "" {
		t.Errorf("conditions after the first one (-want +got):\n%s", diff)
	}
}

// A pod that the cache shows late keeps its node from counting as drained.
func TestANodeIsDrainedWhenALiveListSaysSo(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	key := client.ObjectKeyFromObject(pod)
	hidden := w.pods[key].(*corev1.Pod)
	w.remove(hidden)
	w.podsByNode["n1"][key] = hidden // Still there, but no event has told of it.
	w.settle(t)
	if got := w.plan("kernel").Status.Stage; got != drain {
		t.Errorf("stage %s, want Drain", got)
	}
	delete(w.podsByNode["n1"], key)
	w.settle(t)
	if got := w.plan("kernel").Status.Stage; got != drained {
		t.Errorf("stage %s, want DrainComplete", got)
	}
}

// The API server changes a pod once more just before it is gone. The worker that looks at the
// change must not count a pod of whose end it was told meanwhile: its node would never be drained.
func TestAPodThatGoesWhileItIsLookedAtIsNotCountedAgain(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	leaving := w.pods[client.ObjectKeyFromObject(pod)].(*corev1.Pod).DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
	w.put(leaving)
	w.meanwhile = func() { w.remove(leaving) }
	w.settle(t)
	if w.meanwhile != nil {
		t.Fatal("nobody has looked at the pod")
	}
	status := w.plan("kernel").Status
	want := v1alpha1.MaintenanceProgress{Nodes: 1, NodesCordoned: 1, NodesDrained: 1, PodsEvacuated: 1}
	if diff := cmp.Diff(want, status.Progress); diff != "" || status.Stage != drained {
		t.Errorf("stage %s, progress (-want +got):\n%s", status.Stage, diff)
	}
}

// A dead node confirms no end of a pod. The maintenance is done when they are deleted, and says
// what is left to a person. When the node comes back, it waits for the end.
func TestAMaintenanceOfADeadNodeEnds(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	leaving := w.pods[client.ObjectKeyFromObject(pod)].(*corev1.Pod).DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
	w.put(leaving)
	w.settle(t)
	is := func(status corev1.ConditionStatus) {
		node := w.nodes[types.NamespacedName{Name: "n1"}].(*corev1.Node).DeepCopy()
		node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = status, metav1.NewTime(w.clock.Now())
		w.put(node)
		w.settle(t)
	}
	if got := w.plan("kernel").Status.Stage; got != drain {
		t.Errorf("while the pod terminates: stage %s, want Drain", got)
	}
	is(corev1.ConditionUnknown)
	w.settle(t) // Numbers and names wait to be written.
	status := w.plan("kernel").Status
	if status.Stage != drained {
		t.Errorf("on a lost node: stage %s, want DrainComplete", status.Stage)
	}
	want := "All pods that were to go have gone or, on lost nodes, are deleted (n1: 1). Nobody confirms their end there. " +
		"If a machine is off, say so: kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	if diff := cmp.Diff(want, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDrained).Message); diff != "" {
		t.Errorf("condition Drained (-want +got):\n%s", diff)
	}
	is(corev1.ConditionTrue)
	if got := w.plan("kernel").Status.Stage; got != drain {
		t.Errorf("once it is back: stage %s, want Drain", got)
	}
	w.remove(leaving)
	w.settle(t)
	if got := w.plan("kernel").Status.Stage; got != drained {
		t.Errorf("once the pod is gone: stage %s, want DrainComplete", got)
	}
}

// The pod of a virtual machine that has moved ends as Succeeded; its object may stay. A
// reconcile may see that in the cache before the informer tells of it.
func TestAPodThatHasEndedCountsAsEvacuatedOnce(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	key := client.ObjectKeyFromObject(pod)
	before := w.pods[key].(*corev1.Pod)
	ended := before.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	w.pods[key], w.podsByNode["n1"][key] = ended, ended
	pods := w.parts["pods"]
	if _, err := pods.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	pods.Events.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: ended}, pods.Queue)
	w.settle(t)
	want := v1alpha1.MaintenanceProgress{Nodes: 1, NodesCordoned: 1, NodesDrained: 1, PodsEvacuated: 1}
	if diff := cmp.Diff(want, w.plan("kernel").Status.Progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	w.remove(w.pods[client.ObjectKeyFromObject(pod)])
	w.settle(t)
	if diff := cmp.Diff(want, w.plan("kernel").Status.Progress); diff != "" {
		t.Errorf("progress when the object is gone, too (-want +got):\n%s", diff)
	}
}

// cancel is what the engine writes into a request: it is canceled for that reason.
func (w *world) cancel(pod *corev1.Pod, reason string) {
	key := v1alpha1.RequestKey(pod)
	er := w.requests[key].DeepCopy()
	er.Status.NodeName = pod.Spec.NodeName
	er.Status.Conditions = append(er.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionCanceled, Status: metav1.ConditionTrue, Reason: reason})
	w.putRequest(er)
}

// A request that was refused keeps its requesters, and nobody needs to leave it.
func TestDeletionDoesNotWaitForARequestThatWasRefused(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	w.cancel(pod, v1alpha1.ReasonValidationFailed)
	w.settle(t)
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
	w.settle(t)
	if m := w.plan("kernel"); m != nil {
		t.Errorf("it is still there: %+v", m)
	}
	if diff := cmp.Diff(map[string]string{}, w.annotations("n1")); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if got := w.conditions(pod); len(got) > 0 {
		t.Errorf("conditions %v, want none", got)
	}
}

// A request that was canceled is kept for a while. It says nothing about who intercepts
// the pod, so a pod with interceptors does not wait for its owner the second time.
func TestAPodWithInterceptorsIsAskedAtOnceTheSecondTime(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = false })
	w.settle(t)
	if got := w.requesters(pod); len(got) > 0 {
		t.Fatalf("requesters %v, want none while it does not drain", got)
	}
	w.cancel(pod, v1alpha1.ReasonNoRequesters)
	w.clock.Step(time.Hour)
	from := w.clock.Now()
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = true })
	for len(w.requesters(pod)) == 0 && w.clock.Since(from) < 10*time.Second {
		w.reconcile(t)
		w.clock.Step(planStep)
	}
	if diff := cmp.Diff([]string{"kernel.node-maintenance.drawbridge.dev"}, w.requesters(pod)); diff != "" {
		t.Errorf("requesters long before a pod without interceptors has any (-want +got):\n%s", diff)
	}
}

// planStep is a part of what the controllers gather events for.
const planStep = 500 * time.Millisecond

// A pod that ends slowly outlives the maintenance that wanted it gone.
func TestATerminatingPodIsNotAskedToGoWhenNobodyDrainsItsNodeAnyMore(t *testing.T) {
	w, _, pod := one(t)
	w.put(drainOf("kernel"))
	w.settle(t)
	going := w.pods[client.ObjectKeyFromObject(pod)].(*corev1.Pod).DeepCopy()
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: w.clock.Now().Add(time.Hour)}, []string{"example.com/slow"}
	w.put(going)
	w.settle(t)
	w.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
	w.settle(t)
	if got := w.conditions(pod); len(got) > 0 {
		t.Errorf("conditions %v, want none", got)
	}
}

// An owner that has promised to move a pod and does not is told of, and is not waited
// for without a bound.
func TestAnOwnerThatDoesNothingIsNotWaitedForWithoutABound(t *testing.T) {
	w, _, pod := one(t)
	promised := pod.DeepCopy()
	promised.Annotations = nil
	promised.Status.Conditions = append(promised.Status.Conditions, corev1.PodCondition{
		Type: v1alpha1.PodEvacuationInitiated, Status: corev1.ConditionTrue, Reason: "TheOwner", LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	w.put(promised)
	w.put(drainOf("kernel"))
	w.settle(t)
	w.clock.Step(5 * time.Minute)
	w.settle(t)
	if got := w.requesters(pod); len(got) > 0 || w.plan("kernel").Status.Progress.PodsBlocking != 0 {
		t.Errorf("requesters %v, progress %+v, want nothing yet", got, w.plan("kernel").Status.Progress)
	}
	w.clock.Step(6 * time.Minute)
	w.settle(t)
	if got := w.requesters(pod); len(got) > 0 || w.plan("kernel").Status.Progress.PodsBlocking != 1 {
		t.Errorf("requesters %v, progress %+v, want it to be shown as blocking", got, w.plan("kernel").Status.Progress)
	}
	w.clock.Step(10 * time.Minute)
	w.settle(t)
	if diff := cmp.Diff([]string{"kernel.node-maintenance.drawbridge.dev"}, w.requesters(pod)); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
}
