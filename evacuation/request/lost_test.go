package request

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// nodes knows nothing but whether a node is lost.
type nodes struct {
	loss  translate.NodeLoss
	fails error
}

func (n *nodes) Of(context.Context, *v1alpha1.EvictionRequest, *corev1.Pod) ([]translate.Learnt, error) {
	return nil, nil
}

func (n *nodes) NodeLoss(_ context.Context, node string) (translate.NodeLoss, error) {
	if node != "n1" {
		return translate.NodeLoss{}, errors.New("asked for another node: " + node)
	}
	return n.loss, n.fails
}

func (n *nodes) Start(context.Context, controllers.Queue) error { return nil }

// lostNode is a request whose first interceptor is interrupted if the node is lost, whose
// second one gets no turn then, and whose third one waits.
func lostNode(t *testing.T) (*bench, *nodes) {
	t.Helper()
	b := newBench(t, newRequest().Obj(), webPod().Interceptors("a.example.com", "b.example.com", "c.example.com").Obj())
	policies := map[string]process.LostPolicy{"a.example.com": process.LostInterrupt, "b.example.com": process.LostSkip}
	b.Planned = func(name string) v1alpha1.Interceptor {
		return itemOf(process.Participant{Name: name, OnNodeLost: policies[name]})
	}
	n := &nodes{}
	b.Deadlines = n
	return b, n
}

func (b *bench) condition(t *testing.T) string {
	t.Helper()
	er := &v1alpha1.EvictionRequest{}
	if err := b.live.Get(t.Context(), key, er); err != nil {
		t.Fatal(err)
	}
	return messageOf(er, v1alpha1.ConditionNodeLost)
}

func checkState(t *testing.T, b *bench, when, want string) {
	t.Helper()
	if diff := cmp.Diff(want, b.state(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func TestAPodOfALostNode(t *testing.T) {
	b, n := lostNode(t)
	b.mustReconcile(t)
	checkState(t, b, "while the node is Ready", "active [a.example.com] processed []")

	n.loss = translate.NodeLoss{At: t0.Add(time.Minute), Why: "its condition Ready is Unknown since 12:00"}
	if got := b.mustReconcile(t); got != time.Minute {
		t.Errorf("it waits %s for the node, want a minute", got)
	}
	checkState(t, b, "before the minute is over", "active [a.example.com] processed []")

	b.clock.Step(time.Minute)
	b.mustReconcile(t)
	checkState(t, b, "once it is lost", "active [c.example.com] processed [a.example.com b.example.com] drawbridge.dev/NodeLost=True/NodeUnreachable")
	message := "Node n1 is lost: its condition Ready is Unknown since 12:00. Passed over because of that: a.example.com, b.example.com."
	if diff := cmp.Diff(message, b.condition(t)); diff != "" {
		t.Errorf("condition (-want +got):\n%s", diff)
	}
	turns := strings.Count(strings.Join(b.metrics.told, "\n"), "turn node_lost")
	if turns != 2 {
		t.Errorf("%d turns counted, want 2: %q", turns, b.metrics.told)
	}
	want := []string{
		"EvictionRequest InterceptorActivated", "Pod InterceptorActivated",
		"EvictionRequest InterceptorActivated", "Pod InterceptorActivated", "EvictionRequest NodeLost", "Pod NodeLost",
	}
	if diff := cmp.Diff(want, b.events.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	patches := len(b.patches)
	b.mustReconcile(t)
	if len(b.patches) != patches {
		t.Errorf("it is written again: %s", b.patches[patches:])
	}

	n.loss.At = b.clock.Now().Add(time.Minute) // From False to Unknown.
	b.mustReconcile(t)
	checkState(t, b, "while it stays away", "active [c.example.com] processed [a.example.com b.example.com] drawbridge.dev/NodeLost=True/NodeUnreachable")

	n.loss = translate.NodeLoss{}
	b.mustReconcile(t)
	checkState(t, b, "once it is back", "active [c.example.com] processed [a.example.com b.example.com] drawbridge.dev/NodeLost=False/NodeBack")
	if last := b.events.events[len(b.events.events)-1]; last != "Pod NodeBack" {
		t.Errorf("the last event is %s", last)
	}
}

// Without an answer nothing is decided: the node may be lost, or not.
func TestANodeThatCannotBeReadIsNoVerdict(t *testing.T) {
	b, n := lostNode(t)
	n.fails = errors.New("no")
	if _, err := b.reconcile(t); !errors.Is(err, n.fails) {
		t.Errorf("error %v", err)
	}
	checkState(t, b, "without an answer", "active [] processed []")
}

// The end of the pod says nothing of the node.
func TestWhatIsSaidOfALostNodeStaysWhenThePodIsGone(t *testing.T) {
	gone := newRequest().Observed().Interceptors("a.example.com").Processed("a.example.com").Active(imperative, t0).
		Condition(v1alpha1.ConditionNodeLost, v1alpha1.ReasonNodeUnreachable, t0)
	for name, pod := range map[string]*builder.PodWrapper{"it is gone": nil, "it has ended": webPod().Phase(corev1.PodFailed)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, gone.Obj().DeepCopy())
			if pod != nil {
				b = newBench(t, gone.Obj().DeepCopy(), pod.Obj())
			}
			b.Deadlines = &nodes{}
			b.mustReconcile(t)
			if got := b.state(t); !strings.Contains(got, "NodeLost=True/NodeUnreachable Evicted=True") {
				t.Errorf("it says %s", got)
			}
		})
	}
}
