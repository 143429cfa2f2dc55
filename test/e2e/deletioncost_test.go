//go:build unix

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/deletioncost"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// leavingCost is the deletion cost of a pod whose eviction is requested.
const leavingCost = "-2147483647"

// withDeletionCosts starts no other writer of pods besides.
func withDeletionCosts(o *app.Options) {
	patientInterceptors(o)
	o.PodDeletionCost, o.Guard.Enabled, o.DeschedulerMark = true, false, false
}

// unaltered fails the test unless the annotations of the very pod are those it had.
func unaltered(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pod.Annotations, now.Annotations, cmpopts.EquateEmpty()); diff != "" || now.UID != pod.UID {
		t.Errorf("pod %s, UID %s: annotations (-want +got):\n%s", pod.Name, now.UID, diff)
	}
}

// A pod whose eviction is requested goes first when its Deployment is scaled down, although
// Kubernetes would take another one; when the eviction is canceled, it is as it was.
func TestPodsThatLeaveAreTheCheapestToLose(t *testing.T) {
	startManager(t, withDeletionCosts)
	a := newSpreadApp(t, intercepted("slow.example.com"))
	mark := kube.RequestLog().Mark()
	alone := map[string]*corev1.Pod{}
	for i := range a.pods {
		// Those of zone a share their node, so they would go first.
		if pod := &a.pods[i]; a.zones[pod.Spec.NodeName] != "a" {
			alone[fmt.Sprint(len(alone))] = pod
		}
	}
	leaves, canceled, own, edited, untouched := alone["0"], alone["1"], alone["2"], alone["3"], alone["4"]
	setCost(t, own, "7")
	setCost(t, edited, "8")
	for _, pod := range []*corev1.Pod{own, edited} {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
	}
	// Neither has a ReplicaSet that would look at the cost.
	bare := createPod(t, builder.Pod(a.namespace, "bare").Node(kubeNode(t)).Interceptors("slow.example.com").Obj())
	mover := newNative(t, a.namespace, "mover", "mover.example.com")
	for _, pod := range []*corev1.Pod{leaves, canceled, own, edited, bare} {
		mover.apply(t, pod, true)
		waitRequest(t, pod, "intercepted", activeIs("slow.example.com"))
	}
	for pod, former := range map[*corev1.Pod]string{leaves: "", canceled: "", own: "7", edited: "8"} {
		waitHint(t, pod, corev1.PodDeletionCost, leavingCost)
		now := &corev1.Pod{}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		if got, ok := now.Annotations[deletioncost.FormerAnnotation]; !ok || got != former {
			t.Errorf("pod %s: former cost %q, %t, want %q", pod.Name, got, ok, former)
		}
	}
	// A person decides otherwise.
	setCost(t, edited, "100")
	for _, pod := range []*corev1.Pod{canceled, own, edited, bare} {
		mover.apply(t, pod, false)
		waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	}
	for _, pod := range []*corev1.Pod{canceled, own, edited} {
		eventually(t, "the former cost of "+pod.Name+" to be forgotten", func(ctx context.Context) error {
			now := &corev1.Pod{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
				return err
			}
			if former, ok := now.Annotations[deletioncost.FormerAnnotation]; ok {
				return fmt.Errorf("it is %q", former)
			}
			return nil
		})
	}
	edited.Annotations[corev1.PodDeletionCost] = "100"
	for _, pod := range []*corev1.Pod{canceled, own, edited, untouched, bare} {
		unaltered(t, pod)
	}

	result := must(kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "scale", "deployment/web", "--replicas=8", "-n", a.namespace))(t)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	gone(t, leaves)
	for _, pod := range a.pods {
		if pod.UID != leaves.UID {
			lives(t, &pod)
		}
	}
	wantPatches(t, since(t, mark), map[*corev1.Pod]int{leaves: 1, canceled: 2, own: 2, edited: 2, untouched: 0, bare: 0})
}

// What a killed manager leaves on pods, the next one takes back. Without the flag, no pod is
// touched at all.
func TestDeletionCostsOfAKilledManagerAreTakenBack(t *testing.T) {
	a := newSpreadApp(t, intercepted("slow.example.com"))
	over, goesOn := &a.pods[0], &a.pods[1]
	mover := newNative(t, a.namespace, "mover", "mover.example.com")
	flags := append([]string{"--pod-deletion-cost", "--guard=false", "--descheduler-mark-in-progress=false"}, impatient...)
	manager := startProcess(t, append(flags, "--heartbeat-deadline=1h")...)
	mover.apply(t, over, true)
	mover.apply(t, goesOn, true)
	waitHint(t, over, corev1.PodDeletionCost, leavingCost)
	waitHint(t, goesOn, corev1.PodDeletionCost, leavingCost)
	if err := manager.Kill(); err != nil {
		t.Fatal(err)
	}
	er := waitRequest(t, over, "there", func(*v1alpha1.EvictionRequest) bool { return true })
	if err := admin.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	waitHint(t, over, corev1.PodDeletionCost, leavingCost)

	manager = startProcess(t, append(flags, "--heartbeat-deadline=1h")...)
	waitHint(t, over, corev1.PodDeletionCost, "")
	unaltered(t, over)
	waitHint(t, goesOn, corev1.PodDeletionCost, leavingCost)
	if err := manager.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}

	off := &a.pods[2]
	mark := kube.RequestLog().Mark()
	manager = startProcess(t, append(flags, "--heartbeat-deadline=1h", "--pod-deletion-cost=false")...)
	mover.apply(t, off, true)
	waitRequest(t, off, "intercepted", activeIs("slow.example.com"))
	mover.apply(t, off, false)
	waitRequest(t, off, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	unaltered(t, off)
	if got := patchesOf(since(t, mark), off); len(got) != 0 {
		t.Errorf("want no patch while it is off, got:\n%s", got)
	}
	if err := manager.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// The row deletion_cost of the table in docs/operations/observability.md. With a manager of
// its own, because it is off by default.
func TestRefusedDeletionCost(t *testing.T) {
	m := startManager(t, withDeletionCosts)
	a := newSpreadApp(t, intercepted("slow.example.com"))
	pod := &a.pods[0]
	end := refuse(t, refusal{resource: "pods", namespace: pod.Namespace, only: "request.options.?fieldManager.orValue('') == 'deletion-cost.drawbridge.dev'"})
	newNative(t, a.namespace, "mover", "mover.example.com").apply(t, pod, true)
	waitRequest(t, pod, "intercepted", activeIs("slow.example.com"))
	wantRefused(t, m, pod, refused.DeletionCost, refused.Policy, words)
	end()
	waitHint(t, pod, corev1.PodDeletionCost, leavingCost)
	complete(t, pod, "slow.example.com", m.Clock.Now)
	gone(t, pod)
}
