//go:build unix

package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// forbidCancel lets an interceptor begin, and report that there is no way back.
func forbidCancel(t *testing.T, m *manager.Manager, pod *corev1.Pod, interceptor string) {
	t.Helper()
	waitRequest(t, pod, "in the hands of "+interceptor, activeIs(interceptor))
	report(t, pod, interceptor, func(s *v1alpha1.InterceptorStatus) {
		at := metav1.NewTime(m.Clock.Now())
		s.StartTime, s.HeartbeatTime, s.Cancellation = &at, &at, v1alpha1.CancellationForbidden
	})
}

// completeBegun lets it complete.
func completeBegun(t *testing.T, m *manager.Manager, pod *corev1.Pod, interceptor string) {
	t.Helper()
	report(t, pod, interceptor, func(s *v1alpha1.InterceptorStatus) { s.CompletionTime = new(metav1.NewTime(m.Clock.Now())) })
}

// goesOnUnwanted wants that a request goes on although nobody wants it.
func goesOnUnwanted(t *testing.T, pod *corev1.Pod, interceptor string) {
	t.Helper()
	er := waitRequest(t, pod, "going on with nobody who wants it", func(er *v1alpha1.EvictionRequest) bool {
		return len(er.Spec.Requesters) == 0 && isTrue(v1alpha1.ConditionCancellationForbidden)(er)
	})
	if v1alpha1.IsFinished(er) || !activeIs(interceptor)(er) {
		t.Errorf("it has ended, or somebody else has the turn: %+v", er.Status)
	}
	wanted := "The eviction has no requester left, but it continues: " + interceptor + " is past the point of no return."
	saysAll(t, "the condition", meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCancellationForbidden).Message, wanted)
	saysAll(t, "the event", waitEvent(t, pod, events.ReasonCancellationForbidden).Note, wanted)
}

// The last requester may leave, but the eviction goes on to its end.
func TestWhatIsPastThePointOfNoReturnIsNotCanceled(t *testing.T) {
	m := shareManager(t)
	pod, interceptor := held(t)
	drain := &requester.Requester{Name: "drain.example.com", Client: must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t)}
	must(drain.Join(t.Context(), pod))(t)
	forbidCancel(t, m, pod, interceptor)
	if code, said := operator().run(t.Context(), t, "cancel", "pod/"+pod.Name, "-n", pod.Namespace); code == 0 {
		t.Errorf("the plugin called it off: %s", said)
	} else {
		saysAll(t, "the plugin", said, "too late: interceptor "+interceptor+" is past the point of no return with pod db-0")
	}
	if err := drain.Withdraw(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	goesOnUnwanted(t, pod, interceptor)

	// It cannot be taken back, and takes new requesters.
	if err := answerTo(t, func(ctx context.Context) error {
		er, err := getRequest(ctx, pod)
		if err != nil {
			return err
		}
		er.Status.Interceptors[0].Cancellation = v1alpha1.CancellationAllowed
		return admin.Status().Update(ctx, er)
	}); err == nil {
		t.Error("what is forbidden was allowed again")
	} else {
		saysAll(t, "the API server", err.Error(), "cancellation cannot be taken back once it is Forbidden")
	}
	must(drain.Join(t.Context(), pod))(t)
	if err := drain.Withdraw(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	completeBegun(t, m, pod, interceptor)
	gone(t, pod)
	waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
}

// An uncordon in the middle of a switch-over is heard, but does not cancel.
func TestAnUncordonDoesNotCancelWhatIsPastThePointOfNoReturn(t *testing.T) {
	m := shareManager(t)
	pod, interceptor := held(t)
	kubectl(t, "alice", "cordon", pod.Spec.NodeName)
	evict(t, "alice", pod, eviction(pod))
	forbidCancel(t, m, pod, interceptor)
	code, said := operator().run(t.Context(), t, "uncordon", pod.Spec.NodeName)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	saysAll(t, "the plugin", said,
		fmt.Sprintf("The eviction of pod %s/db-0 continues nevertheless: interceptor %s is past the point of no return.", pod.Namespace, interceptor))
	goesOnUnwanted(t, pod, interceptor)
	completeBegun(t, m, pod, interceptor)
	gone(t, pod)
}

// Whoever comes next goes on from what stands in the request.
func TestAKilledManagerKnowsWhatIsPastThePointOfNoReturn(t *testing.T) {
	m := startManager(t, nil)
	namespace, node := placed(t)
	interceptor := nameIn(namespace, "slow")
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(interceptor).Obj())
	drain := &requester.Requester{Name: "drain.example.com", Client: must(client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme}))(t)}
	must(drain.Join(t.Context(), pod))(t)
	forbidCancel(t, m, pod, interceptor)
	m.Kill()
	<-m.Done()
	if err := drain.Withdraw(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	m = inst.ForTest(t, manager.Options{Clock: m.Clock, Change: withPresets(nil)})
	goesOnUnwanted(t, pod, interceptor)
	completeBegun(t, m, pod, interceptor)
	gone(t, pod)
}

// KubeVirt's own state of a post-copy migration, from the switch-over on.
func TestKubeVirtASwitchOverIsNotCanceled(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	const kubevirt = "kubevirt.drawbridge.dev"
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	drain := startDrain(t, "alice", nodes[0])
	waitMark(t, namespace, "vm", nodes[0])
	state := map[string]any{"mode": "PreCopy", "sourceNode": nodes[0], "targetNode": nodes[1], "startTimestamp": "2026-01-01T00:00:00Z"}
	migrates := func() {
		setMachine(t, namespace, "vm", func(m *unstructured.Unstructured) { vmcrds.Set(m, "status.migrationState", maps.Clone(state)) })
	}
	migrates()
	er := waitRequest(t, pod, "following the migration", says(kubevirt, "It migrates to node "+nodes[1]))
	if by := v1alpha1.Forbidding(er); by != "" {
		t.Errorf("%s forbids to cancel before the switch-over", by)
	}
	state["mode"] = "PostCopy"
	migrates()
	waitRequest(t, pod, "past the point of no return", func(er *v1alpha1.EvictionRequest) bool { return v1alpha1.Forbidding(er) == kubevirt })
	killed(t, drain)
	kubectl(t, "alice", "uncordon", nodes[0])
	goesOnUnwanted(t, pod, kubevirt)
	if got := markOf(must(getMachine(t.Context(), namespace, "vm"))(t)); got != nodes[0] {
		t.Errorf("the machine's mark is %q", got)
	}
	state["completed"], state["endTimestamp"] = true, "2026-01-01T00:01:00Z"
	setMachine(t, namespace, "vm", func(m *unstructured.Unstructured) { vmcrds.Set(m, "status.nodeName", nodes[1]) })
	migrates()
	gone(t, pod)
}
