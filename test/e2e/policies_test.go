//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// failingPolicy covers all pods of the cluster, is the first of all policies, and
// fails for every one of them.
func failingPolicy(t *testing.T, namespace, expression string) *v1alpha1.EvacuationPolicy {
	t.Helper()
	p := &v1alpha1.EvacuationPolicy{}
	p.Name = "a-failing"
	p.Spec = v1alpha1.EvacuationPolicySpec{Priority: 100, Strategy: expression, Evacuating: "false"}
	return ownPolicy(t, namespace, p, func(s *v1alpha1.EvacuationPolicySpec) { s.Pods = v1alpha1.CoveredPods{} })
}

// One policy whose expression fails on pods of others holds none of them, and its own
// by name: on the pod, on the request and for whoever asks.
func TestAPolicyThatFailsHoldsNoPodsOfOthers(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	p := failingPolicy(t, namespace, "pod.metadata.annotations['nobody-has-this']")
	waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	native := func(pod string) *builder.PodWrapper { return builder.Pod(namespace, pod).Node(nodes[0]) }

	others := createPod(t, native("others").Obj())
	create(t, builder.EvictionRequest(namespace, others.Name, others.UID).Requesters("native.example.com").Obj())
	gone(t, others)

	own := createPod(t, native("own").Label("kubevirt.io", "of-"+namespace).Obj())
	er := builder.EvictionRequest(namespace, own.Name, own.UID).Requesters("native.example.com").Obj()
	create(t, er)
	waitRequest(t, own, "in the hands of the interceptor", activeIs(p.Spec.Interceptor))
	got := evict(t, "alice", own, eviction(own))
	if got.code != http.StatusTooManyRequests {
		t.Errorf("want 429, got %d: %s", got.code, got.body)
	}
	waitRequest(t, own, "told what is wrong", says(p.Spec.Interceptor, "nobody-has-this"))
	lives(t, own)

	// The machines of the preset are none of its business.
	machine := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "False")
	if got := evictUntil(t, "alice", machine, "not live-migratable"); got.code != http.StatusTooManyRequests {
		t.Errorf("a machine: want 429, got %d: %s", got.code, got.body)
	}
	free := createMachine(t, namespace, "free", nodes[0], "None", "True")
	evictUntilGranted(t, free)
	gone(t, free)
}

// Whoever may write policies, covers all pods and is the first, cannot let a machine
// go that its own platform holds; everybody can see that there are two.
func TestAStrangersPolicyDoesNotOpenTheGuardOfAMachine(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "False")
	waitGuard(t, pod, true)
	p := &v1alpha1.EvacuationPolicy{}
	p.Name = "a-stranger"
	p.Spec = v1alpha1.EvacuationPolicySpec{Priority: 100, Strategy: "'None'", Evacuating: "false"}
	p = ownPolicy(t, namespace, p, func(s *v1alpha1.EvacuationPolicySpec) {
		// Not all pods, because other tests look at the conditions of the preset.
		s.Pods.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubevirt.io": "virt-launcher"}}
		s.Pods.MatchConditions = []v1alpha1.MatchCondition{{Name: "here", Expression: "pod.metadata.namespace == '" + namespace + "'"}}
	})
	waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	for range 5 {
		if got := evict(t, "alice", pod, eviction(pod)); got.code != http.StatusTooManyRequests {
			t.Errorf("want 429, got %d: %s", got.code, got.body)
		}
	}
	// A native requester gets past the interceptor, but not past the guard.
	create(t, builder.EvictionRequest(namespace, pod.Name, pod.UID).Requesters("native.example.com").Obj())
	event := waitEvent(t, waitRequest(t, pod, "past the interceptor", activeIs(v1alpha1.ImperativeEvictionInterceptor)), "GuardHeld")
	if !strings.Contains(event.Note, "EvacuationPolicy kubevirt keeps the pod") {
		t.Errorf("the event does not name the policy: %s", event.Note)
	}
	waitGuard(t, pod, true)
	lives(t, pod)
	c := waitPolicy(t, p.Name, v1alpha1.ConditionExclusive, metav1.ConditionFalse, v1alpha1.ReasonOverlapping)
	saysAll(t, "the condition", c.Message, "policy kubevirt of interceptor "+kubevirtInterceptor)
	for _, name := range []string{p.Name, "kubevirt"} {
		waitPolicyEvent(t, name, "PoliciesOverlap")
	}
}

// waitPolicyEvent waits for an event about a policy, which has no namespace.
func waitPolicyEvent(t *testing.T, name, reason string) {
	t.Helper()
	eventually(t, "event "+reason+" of policy "+name, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Regarding.Kind == "EvacuationPolicy" && event.Regarding.Name == name && event.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("there are %d events", len(list.Items))
	})
}
