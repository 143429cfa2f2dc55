//go:build unix

package e2e

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// going is a taint that deletes pods.
var going = corev1.Taint{Key: "example.com/going", Effect: corev1.TaintEffectNoExecute}

// bears makes a pod tolerate it for so many seconds.
func bears(seconds int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: going.Key, Operator: corev1.TolerationOpExists, Effect: going.Effect, TolerationSeconds: &seconds,
		})
	}
}

func taintNode(t *testing.T, node string) {
	t.Helper()
	patchNode(t, node, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, going) })
}

func followTaints(o *app.Options) { o.Taints.Enabled = true }

// A pod that a taint deletes is asked for while there is time, and kept if the taint goes.
func TestATaintThatGoesIsForgotten(t *testing.T) {
	startManager(t, followTaints)
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(60).Interceptors("a.example.com").Change(bears(3600)).Obj())
	plain := createPod(t, builder.Pod(namespace, "web-0").Node(node).Change(bears(3600)).Obj())

	began := time.Now().Truncate(time.Second)
	taintNode(t, node)
	er := waitRequest(t, pod, "active with a deadline", func(er *v1alpha1.EvictionRequest) bool {
		return activeIs("a.example.com")(er) && er.Status.Deadline != nil
	})
	if diff := cmp.Diff([]string{v1alpha1.TaintEvictionRequester}, requesters(er)); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	until := er.Spec.Requesters[0].Deadline.Time
	if left := until.Sub(began); left < time.Hour || left > time.Hour+3*time.Minute {
		t.Errorf("the taint is tolerated for an hour, and the pod is deleted %s after it came", left)
	}
	waitDeadline(t, pod, "requester "+v1alpha1.TaintEvictionRequester, until.Add(-reserved))
	wanted := "Kubernetes deletes pod db-0 at " + until.UTC().Format(time.RFC3339) + " because of the taint " + going.Key + " of node " + node +
		". Drawbridge cannot hold that, so the interceptors begin now."
	if diff := cmp.Diff(wanted, waitEvent(t, pod, events.ReasonTaintDeletesPod).Note); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	waitEvent(t, er, events.ReasonTaintDeletesPod)
	noRequest(t, plain)

	canceled := func(why string) {
		t.Helper()
		er = waitRequest(t, pod, "canceled, as "+why, isTrue(v1alpha1.ConditionCanceled))
		if diff := cmp.Diff(v1alpha1.ReasonNoRequesters, meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled).Reason); diff != "" {
			t.Errorf("reason (-want +got):\n%s", diff)
		}
		lives(t, pod)
	}
	tolerate := func(seconds *int64) {
		t.Helper()
		pod = readyPod(t, namespace, pod.Name)
		patch(t, pod, func() { pod.Spec.Tolerations[0].TolerationSeconds = seconds })
	}
	tolerate(nil)
	canceled("the pod tolerates it forever")
	tolerate(new(int64(1800)))
	// A canceled request stays canceled.
	waitRequest(t, pod, "active again", func(again *v1alpha1.EvictionRequest) bool {
		return again.UID != er.UID && activeIs("a.example.com")(again)
	})
	patchNode(t, node, func(n *corev1.Node) { n.Spec.Taints = nil })
	canceled("the taint is gone")
	lives(t, plain)
	noRequest(t, plain)
}

// The eviction comes before the deletion, so the interceptors are told when they are cut off.
func TestATaintCutsOffTheInterceptorsBeforeItDeletes(t *testing.T) {
	m := startManager(t, followTaints)
	namespace, node := placed(t)
	// Kubernetes deletes it in ten minutes. The manager's clock comes near that in less.
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(60).Interceptors("a.example.com").Change(bears(600)).Obj())
	taintNode(t, node)
	er := waitRequest(t, pod, "active with a deadline", func(er *v1alpha1.EvictionRequest) bool {
		return activeIs("a.example.com")(er) && er.Status.Deadline != nil
	})
	until := er.Spec.Requesters[0].Deadline.Time
	m.Clock.AdvanceTo(until.Add(-reserved))
	er = waitRequest(t, pod, "cut off", isTrue(v1alpha1.ConditionCutOff))
	saysAll(t, "the condition", meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCutOff).Message,
		"The deadline of requester "+v1alpha1.TaintEvictionRequester+" leaves the interceptors until "+until.Add(-reserved).UTC().Format(time.RFC3339)+": a.example.com was not done.")
	waitEvent(t, er, events.ReasonEvictionAccepted)
	gone(t, pod)
	er = waitRequest(t, pod, "evicted", isTrue(v1alpha1.ConditionEvicted))
	if at := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionEvicted).LastTransitionTime; !at.Time.Before(until) {
		t.Errorf("evicted at %s, and Kubernetes deletes at %s", at, until)
	}
}

// What was asked for is withdrawn by the next manager, if the taint went while none ran.
func TestATaintThatWentDuringAnOutage(t *testing.T) {
	m := startManager(t, followTaints)
	namespace, node := placed(t)
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).GracePeriod(60).Interceptors("a.example.com").Change(bears(3600)).Obj())
	taintNode(t, node)
	waitRequest(t, pod, "active", activeIs("a.example.com"))
	m.StopFor(t)
	patchNode(t, node, func(n *corev1.Node) { n.Spec.Taints = nil })
	startManager(t, followTaints)
	waitRequest(t, pod, "canceled", isTrue(v1alpha1.ConditionCanceled))
	lives(t, pod)
}
