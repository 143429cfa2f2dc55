//go:build unix

package karpenter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// enoughRefusals of a pod show that it stays: Karpenter calls at 0.1 s, 0.2 s and so on, so
// this is after 12 s.
const enoughRefusals = 8

// outcome is what became of a pod and of its node.
type outcome struct {
	// Ends are the evictions and deletions of the very pod that were carried out. One that
	// was repeated at once counts once: Karpenter may see late that the pod is ending.
	Ends []string
	// Refused says that Karpenter was refused its eviction, at least once.
	Refused bool
	// Prepared says that its interceptor was done before it ended.
	Prepared bool
	// Node is "gone" or "stays".
	Node string
}

// What may be said of a pod and of its node.
const (
	evicted, deleted = "evicted", "deleted by Karpenter"
	gone, stays      = "gone", "stays"
)

// victim is a pod on a node of Karpenter's.
type victim struct {
	pod   *corev1.Pod
	claim *unstructured.Unstructured
	mark  cluster.Mark
}

// onItsNode is a pod and its node, before anything happens to them.
func onItsNode(t *testing.T, pod *corev1.Pod) *victim {
	t.Helper()
	return &victim{pod: pod, claim: claimOf(t, pod), mark: kube.RequestLog().Mark()}
}

// deleteClaim deletes the NodeClaim as a person does.
func (v *victim) deleteClaim(t *testing.T) {
	t.Helper()
	v.mark = kube.RequestLog().Mark()
	if err := admin.Delete(t.Context(), v.claim.DeepCopy()); err != nil {
		t.Fatal(err)
	}
}

// waitGone waits until Karpenter has removed the node.
func (v *victim) waitGone(t *testing.T) {
	t.Helper()
	eventually(t, "NodeClaim "+v.claim.GetName()+" of pod "+v.pod.Name+" to go", func(ctx context.Context) error {
		claim, err := exists(ctx, v.claim)
		if err != nil || !claim {
			return err
		}
		pod, err := exists(ctx, v.pod)
		return errors.Join(fmt.Errorf("it is there, and its pod: %t", pod), err)
	})
}

// waitStays waits until Karpenter has tried in vain often enough.
func (v *victim) waitStays(t *testing.T) {
	t.Helper()
	eventually(t, "Karpenter to be refused pod "+v.pod.Name, func(ctx context.Context) error {
		if there, err := exists(ctx, v.pod); err != nil {
			return err
		} else if !there {
			return waiting.InVain(errors.New("it is gone"))
		}
		if n := v.refusals(t); n < enoughRefusals {
			return fmt.Errorf("%d times so far", n)
		}
		return nil
	})
}

// waitSays waits until Karpenter says something about the node, in an event. After that, or
// something else, of the same kind it is silent for two minutes.
func (v *victim) waitSays(t *testing.T, reason, text string) {
	t.Helper()
	eventually(t, "Karpenter to say "+reason+" of "+v.pod.Spec.NodeName, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list); err != nil {
			return err
		}
		var seen []string
		for _, event := range list.Items {
			if event.Regarding.Name != v.pod.Spec.NodeName {
				continue
			}
			if event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
			seen = append(seen, event.Reason+": "+event.Note)
		}
		return fmt.Errorf("there are %v", seen)
	})
}

// calls are the evictions and deletions of the very pod, but for those of its kubelet.
func (v *victim) calls(t *testing.T) cluster.Requests {
	t.Helper()
	return must(peer.Calls(t.Context(), kube.RequestLog(), v.mark, v.pod))(t).Where(func(r cluster.Request) bool { return peer.IsFor(r, v.pod.UID) })
}

// refusals are how often Karpenter was refused the pod so far.
func (v *victim) refusals(t *testing.T) int {
	t.Helper()
	return len(v.calls(t).By(karpenter).Where(func(r cluster.Request) bool { return r.Code == http.StatusTooManyRequests }))
}

// outcome tells what became of the pod and of its node, and logs when.
func (v *victim) outcome(t *testing.T, w *peer.Worker) outcome {
	t.Helper()
	o := outcome{Refused: v.refusals(t) > 0, Node: gone}
	if must(exists(t.Context(), v.claim))(t) {
		o.Node = stays
	}
	var last time.Time
	for _, r := range v.calls(t) {
		if r.Code != http.StatusOK && r.Code != http.StatusCreated {
			continue
		}
		last = r.Time
		switch {
		case r.Subresource == "eviction":
			o.Ends = append(o.Ends, evicted)
		case r.User == karpenter:
			o.Ends = append(o.Ends, deleted)
		default:
			o.Ends = append(o.Ends, "deleted by "+r.User)
		}
	}
	o.Ends = slices.Compact(o.Ends)
	if w != nil {
		done := w.DoneWith(v.pod.UID)
		o.Prepared = !done.IsZero() && !last.IsZero() && !done.After(last)
	}
	v.tell(t)
	return o
}

// tell logs the calls for the pod, in seconds since the mark's first request of Karpenter's.
func (v *victim) tell(t *testing.T) {
	t.Helper()
	log := must(kube.RequestLog().Since(t.Context(), v.mark))(t)
	var began time.Time
	var said strings.Builder
	for _, r := range log {
		about := r.Resource == "nodeclaims" && r.Name == v.claim.GetName() || r.Resource == "nodes" && r.Name == v.pod.Spec.NodeName
		if about && r.Writes() && r.User != "kwok" {
			if began.IsZero() {
				began = r.Time
			}
			fmt.Fprintf(&said, "%7.2f %s\n", r.Time.Sub(began).Seconds(), r)
		}
	}
	for _, r := range v.calls(t) {
		fmt.Fprintf(&said, "%7.2f %s %s\n", r.Time.Sub(began).Seconds(), r, r.Body)
	}
	t.Logf("NodeClaim %s, pod %s of %s:\n%s", v.claim.GetName(), v.pod.Name, v.pod.Namespace, said.String())
}
