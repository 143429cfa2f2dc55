package preemption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// lister lists the pods of a node and notes what it was asked.
type lister struct {
	client.Reader
	pods  []*corev1.Pod
	calls []string
	err   error
}

func (l *lister) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	l.calls = append(l.calls, options.FieldSelector.String()+" at "+options.Raw.ResourceVersion)
	node, _ := options.FieldSelector.RequiresExactMatch("spec.nodeName")
	for _, pod := range l.pods {
		if pod.Spec.NodeName == node {
			list := into.(*corev1.PodList)
			list.Items = append(list.Items, *pod)
		}
	}
	return l.err
}

// guardedPod and otherPod are on a node; the budget of the first allows none to go.
func guardedPod(name, node string) *corev1.Pod {
	return pod(name).Priority("low", 1).Node(node).CPU("1").Obj()
}

func otherPod(name, node string) *corev1.Pod {
	p := pod(name).Priority("other", 2).Label("app", "other").Node(node).CPU("1").Obj()
	p.Status.StartTime = &metav1.Time{Time: t0.Add(-time.Hour)}
	return p
}

// substituting is a bench whose view and lister have the pods.
func substituting(pods ...*corev1.Pod) (*bench, *lister) {
	b := newBench(priorityClass("low", "1000"), web(0, "1"))
	for _, pod := range pods {
		fill(b.View, pod)
	}
	live := &lister{pods: pods}
	b.Alternatives = NewAlternatives(b.View, live, b.clock, logr.Discard())
	return b, live
}

// about asks about nodes with one victim each.
func about(preemptor *corev1.Pod, victims ...*corev1.Pod) extenderv1.ExtenderPreemptionArgs {
	args := extenderv1.ExtenderPreemptionArgs{Pod: preemptor, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}}
	for _, pod := range victims {
		args.NodeNameToMetaVictims[pod.Spec.NodeName] = &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: string(pod.UID)}}, NumPDBViolations: 1}
	}
	return args
}

// ask returns the victims by node.
func (b *bench) ask(t *testing.T, args extenderv1.ExtenderPreemptionArgs) map[string][]string {
	t.Helper()
	var result extenderv1.ExtenderPreemptionResult
	if err := json.Unmarshal(b.post(t, encoded(t, args)).Body.Bytes(), &result); err != nil {
		t.Fatal(err)
	}
	victims := map[string][]string{}
	for node, meta := range result.NodeNameToMetaVictims {
		for _, pod := range meta.Pods {
			victims[node] = append(victims[node], pod.UID)
		}
	}
	return victims
}

func TestWhenOtherVictimsAreLookedFor(t *testing.T) {
	protected, other := guardedPod("protected", "node-1"), otherPod("other", "node-1")
	free := otherPod("free", "node-2")
	none := map[string][]string{}
	withPort := big(999)
	withHostPort(withPort)
	ending := other.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{Time: t0}
	look := []string{"spec.nodeName=node-1 at 0"}
	tests := map[string]struct {
		args      extenderv1.ExtenderPreemptionArgs
		change    func(*bench, *lister)
		want      map[string][]string
		wantCalls []string
		result    string
	}{
		"no node is left": {about(big(999), protected), nil, map[string][]string{"node-1": {"uid-other"}}, look, "substituted"},
		"a node is left":  {about(big(999), protected, free), nil, map[string][]string{"node-2": {"uid-free"}}, nil, "restricted"},
		"the preemptor may violate the budget": {
			about(big(1000), protected), nil, map[string][]string{"node-1": {"uid-protected"}}, nil, "unchanged",
		},
		"the preemptor wants more than resources": {about(withPort, protected), nil, none, nil, "refused"},
		"nobody is there to go instead": {
			about(big(999), protected), func(b *bench, _ *lister) { b.View.removePod(other) }, none, nil, "refused",
		},
		"the other one is as important as the preemptor": {about(big(2), protected), nil, none, nil, "refused"},
		"the victim is not known": {
			about(big(999), protected), func(b *bench, _ *lister) { b.View.removePod(protected) }, none, nil, "refused",
		},
		"the pods cannot be listed": {
			about(big(999), protected), func(_ *bench, l *lister) { l.err = errors.New("broken") }, none, look, "refused",
		},
		"the other one went since it was listed": {
			about(big(999), protected), func(b *bench, _ *lister) {
				fill(b.View, otherPod("third", "node-1"))
				b.View.removePod(other)
			}, none, look, "refused",
		},
		"the other one is ending, as the view knows": {
			about(big(999), protected), func(b *bench, _ *lister) { fill(b.View, otherPod("third", "node-1"), ending) }, none, look, "refused",
		},
		"the other one is ending, as the list says": {
			about(big(999), protected), func(_ *bench, l *lister) { l.pods[1] = ending }, none, look, "refused",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b, live := substituting(protected, other, free)
			if tc.change != nil {
				tc.change(b, live)
			}
			if diff := cmp.Diff(tc.want, b.ask(t, tc.args)); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantCalls, live.calls); diff != "" {
				t.Errorf("lists (-want +got):\n%s", diff)
			}
			b.counted(t, tc.result)
		})
	}
}

func TestAPreemptorIsGivenOtherVictimsOnce(t *testing.T) {
	protected := guardedPod("protected", "node-1")
	b, live := substituting(protected, otherPod("other", "node-1"))
	instead, none := map[string][]string{"node-1": {"uid-other"}}, map[string][]string{}
	check := func(what string, preemptor *corev1.Pod, want map[string][]string) {
		t.Helper()
		if diff := cmp.Diff(want, b.ask(t, about(preemptor, protected))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("the first time", big(999), instead)
	b.clock.Step(onceIn - time.Second)
	check("again, soon", big(999), none)
	another := builder.Pod("batch", "another").UID("uid-another").Priority("high", 999).Obj()
	check("another one", another, instead)
	b.clock.Step(time.Second)
	check("again, later", big(999), instead)
	if got := len(live.calls); got != 3 {
		t.Errorf("%d lists", got)
	}
}

// So many nodes are looked at for one answer, and others for the next. The number of
// lists in a second is limited.
func TestFewNodesAreLookedAt(t *testing.T) {
	const nodes = 7
	var pods, victims []*corev1.Pod
	for n := range nodes {
		node := fmt.Sprint("node-", n)
		victims = append(victims, guardedPod(fmt.Sprint("protected-", n), node))
		pods = append(pods, victims[n], otherPod(fmt.Sprint("other-", n), node))
	}
	b, live := substituting(pods...)
	for i, pod := range live.pods {
		live.pods[i] = pod.DeepCopy()
		withHostPort(live.pods[i]) // The view cannot know.
	}
	asked := func(what string, want ...int) {
		t.Helper()
		live.calls = nil
		b.ask(t, about(big(999), victims...))
		var calls []string
		for _, n := range want {
			calls = append(calls, fmt.Sprintf("spec.nodeName=node-%d at 0", n))
		}
		if diff := cmp.Diff(calls, live.calls); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	asked("the first answer", 0, 1, 2, 3, 4)
	asked("the next, at once")
	b.clock.Step(time.Second)
	asked("the next, later", 5, 6, 0, 1, 2)
}

func TestWhoWasGivenOtherVictimsIsNotRememberedForEver(t *testing.T) {
	b, _ := substituting()
	for i := range maxGiven + 1 {
		b.Alternatives.give(types.UID(fmt.Sprint(i)))
	}
	if got := len(b.Alternatives.given); got != 1 {
		t.Errorf("%d are remembered", got)
	}
}
