//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/forecast"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// loses lets a node fail, as a kubelet or the node controller says it.
func loses(t *testing.T, name string) {
	t.Helper()
	patchNode(t, name, func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, cluster.ReadyAnnotation, "false")
	})
	eventually(t, "node "+name+" to fail", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.Now()
			}
		}
		return admin.Status().Update(ctx, node)
	})
}

// returns lets a node come back.
func returns(t *testing.T, name string) {
	t.Helper()
	patchNode(t, name, func(n *corev1.Node) { delete(n.Annotations, cluster.ReadyAnnotation) })
}

// wants requests the eviction of a pod for somebody who does not go away.
func wants(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	create(t, builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters("native.example.com").Obj())
}

// nodeLost is the condition of a request.
func nodeLost(er *v1alpha1.EvictionRequest) metav1.Condition {
	if c := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionNodeLost); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// A node that is not Ready for a minute is lost. Then each interceptor has the turn that its
// registration says, and when the node is back all is as ever.
func TestLostNodeCostsTurnsAsTheRegistrationsSay(t *testing.T) {
	m := startManager(t, nil)
	namespace, node := placed(t)
	var names []string
	for i, policy := range []v1alpha1.NodeLostPolicy{v1alpha1.NodeLostInterrupt, v1alpha1.NodeLostSkip, "", v1alpha1.NodeLostSkip} {
		name := nameIn(namespace, fmt.Sprintf("i%d", i))
		register(t, builder.EvictionInterceptor(name).InNamespace(namespace).Priority(int32(20000-i)).OnNodeLost(policy))
		names = append(names, name)
	}
	ended, skipped, waits, later := names[0], names[1], names[2], names[3]
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Obj())
	wants(t, pod)
	er := waitRequest(t, pod, "in the hands of "+ended, activeIs(ended))
	if nodeLost(er).Type != "" {
		t.Errorf("the node is Ready, but the request says %+v", nodeLost(er))
	}

	loses(t, node)
	m.Clock.Advance(time.Minute)
	er = waitRequest(t, pod, "in the hands of "+waits, activeIs(waits))
	if diff := cmp.Diff([]string{ended, skipped}, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	plan := []v1alpha1.Interceptor{
		{Name: ended, OnNodeLost: v1alpha1.NodeLostInterrupt}, {Name: skipped, OnNodeLost: v1alpha1.NodeLostSkip}, {Name: waits},
		{Name: later, OnNodeLost: v1alpha1.NodeLostSkip}, {Name: v1alpha1.ImperativeEvictionInterceptor},
	}
	if diff := cmp.Diff(plan, er.Status.TargetInterceptors); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	c := nodeLost(er)
	if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNodeUnreachable {
		t.Errorf("condition %+v", c)
	}
	saysAll(t, "the condition", c.Message, "Node "+node+" is lost: its condition Ready is False since ", "Passed over because of that: "+ended+", "+skipped+".")
	saysAll(t, "the event", waitEvent(t, pod, events.ReasonNodeLost).Note, c.Message)
	waitEvent(t, er, events.ReasonNodeLost)
	if turns := builder.Series(t, m.Metrics, "drawbridge_interceptor_turns_total"); turns[metrics.TurnNodeLost] < 2 {
		t.Errorf("turns by result: %v, want two that a lost node has cost", turns)
	}
	saysAll(t, "why", strings.Join(storyOf(t, pod, 0).Notes, "\n"), "Node "+node+" is lost", corev1.TaintNodeOutOfService)

	returns(t, node)
	er = waitRequest(t, pod, "on a node that is back", func(er *v1alpha1.EvictionRequest) bool { return nodeLost(er).Status == metav1.ConditionFalse })
	if c := nodeLost(er); c.Reason != v1alpha1.ReasonNodeBack || !activeIs(waits)(er) {
		t.Errorf("it has the turn of %v, and the condition is %+v", er.Status.ActiveInterceptors, c)
	}
	waitEvent(t, pod, events.ReasonNodeBack)
	complete(t, pod, waits, m.Clock.Now)
	complete(t, pod, later, m.Clock.Now) // Nobody is skipped any more.
	gone(t, pod)
}

// A hook that has to reach the pod gets no turn on a lost node, without anybody saying so, and
// one that waits for something else gets it. A person who says that the machine is off need
// not wait for the minute.
func TestNodeLostPassesOverAHookThatHasToReachThePod(t *testing.T) {
	startManager(t, nil)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	flush := h.hook(t, "flush", 1, v1alpha1.EvacuationHookSpec{
		Priority: new(int32(20000)), Exec: &v1alpha1.HookExec{Command: []string{"sh", "-c", "exit 1"}},
	})
	wait := h.hook(t, "wait", 1, v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{Until: "pod.metadata.?labels['done'].orValue('') == 'true'"}})
	witness := createPod(t, builder.Pod(h.namespace, "witness").Node(h.node).Interceptors(nameIn(h.namespace, "slow")).Obj())
	wants(t, witness)
	loses(t, h.node)
	patchNode(t, h.node, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoSchedule})
	})
	er := waitRequest(t, witness, "on a lost node", isTrue(v1alpha1.ConditionNodeLost)) // So the manager has seen it.
	if len(er.Status.ProcessedInterceptors) > 0 {
		t.Errorf("nobody has registered the interceptor %v, so it waits", er.Status.ProcessedInterceptors)
	}
	var told forecast.Forecast
	if err := json.Unmarshal([]byte(plugin(t, "forecast", h.node, "--force", "-o", "json")), &told); err != nil {
		t.Fatal(err)
	}
	foretold := map[string][]string{}
	for _, p := range told.Pods {
		foretold[p.Name] = p.Turns
	}
	if diff := cmp.Diff(map[string][]string{witness.Name: {nameIn(h.namespace, "slow")}, pod.Name: {actsAs(wait)}}, foretold); diff != "" {
		t.Errorf("forecast of turns (-want +got):\n%s", diff)
	}
	wants(t, pod)
	er = waitRequest(t, pod, "in the hands of the hook that waits", activeIs(actsAs(wait)))
	if diff := cmp.Diff([]string{actsAs(flush)}, er.Status.ProcessedInterceptors); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	if got := er.Status.TargetInterceptors[0].OnNodeLost; got != v1alpha1.NodeLostSkip {
		t.Errorf("the exec hook's plan says %q", got)
	}
	saysAll(t, "the condition", nodeLost(er).Message, "it has the taint node.kubernetes.io/out-of-service", actsAs(flush))
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(flush), flush); err != nil {
		t.Fatal(err)
	}
	if len(flush.Status.Runs) > 0 {
		t.Errorf("the command was run: %+v", flush.Status.Runs)
	}
	patch(t, pod, func() { metav1.SetMetaDataLabel(&pod.ObjectMeta, "done", "true") })
	gone(t, pod)
}

// A command that has begun before the node was lost goes on. Once it has failed, no other
// attempt follows, and it does not hold the pod.
func TestNodeLostLetsAHookThatFailedGo(t *testing.T) {
	m := startManager(t, nil)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	flush := h.hook(t, "flush", 1, v1alpha1.EvacuationHookSpec{
		Retries: new(int32), Exec: &v1alpha1.HookExec{Command: []string{"sh", "-c", "exit 1"}},
	})
	wants(t, pod)
	phaseIs(t, flush, waitRequest(t, pod, "in progress", activeIs(actsAs(flush))), v1alpha1.HookHeld)
	loses(t, h.node)
	m.Clock.Advance(time.Minute)
	gone(t, pod)
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(flush)).Message, "the node is lost, so the eviction continues")
}
