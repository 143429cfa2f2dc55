//go:build unix

package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// The disruption controller counts a pod of a Rollout by its ReplicaSet, whatever kind of
// budget it is, and one that is free not at all.
func TestARolloutsSingleReplicaIsReplacedBeforeItGoes(t *testing.T) {
	shareManager(t)
	for name, within := range map[string]limit{
		"a number that must be available":     func(w *builder.BudgetWrapper) *builder.BudgetWrapper { return w.MinAvailable("1") },
		"a percentage that must be available": func(w *builder.BudgetWrapper) *builder.BudgetWrapper { return w.MinAvailable("100%") },
		"a number that may be unavailable":    nobody,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newRolled(t, 1, within)
			pod := &a.pods[0]
			elsewhere := addNodes(t, a.namespace, 1)[0]

			finishWell(t, startDrain(t, "alice", a.node))
			gone(t, pod)
			readyPods(t, a.namespace, 1, elsewhere)
			saysAll(t, "the event", waitEvent(t, pod, "PodHandedUp").Note, "was set free from ReplicaSet web-5d4f")
			waitEvent(t, a.set, "PodHandedUp")
			waitRequest(t, pod, "replaced", surgeSaid("Replaced: ReplicaSet web-5d4f has 1 of 1 replicas available without this pod."))
			waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
			a.counted(t, 1, 1, 0)
			a.untouched(t)
		})
	}
}

func TestPodsOfARolloutAreReplacedOneByOne(t *testing.T) {
	shareManager(t)
	a := newRolled(t, 3, nobody)
	elsewhere := addNodes(t, a.namespace, 1)[0]

	finishWell(t, startDrain(t, "alice", a.node))
	for i := range a.pods {
		gone(t, &a.pods[i])
	}
	readyPods(t, a.namespace, 3, elsewhere)
	a.untouched(t)
	if most := a.surging.Most(t); most != 1 {
		t.Errorf("%d pods were free at a time, want 1", most)
	}
}

// An uncordon in the middle gives the pod back, and it is the other one that goes. Until
// then the pod is one that nobody controls: that is what the guide tells of.
func TestUncordonGivesARolloutsPodBack(t *testing.T) {
	shareManager(t)
	a := newRolled(t, 1, nobody)
	pod := &a.pods[0]

	drain := startDrain(t, "alice", a.node)
	a.waitFree(t, pod)
	a.counted(t, 1, 1, 0)
	waitEvent(t, a.budget, "UnmanagedPods")
	careful := must(kube.Kubectl(t.Context(), as("bob"), "drain", a.node, "--ignore-daemonsets", "--dry-run=server"))(t)
	saysAll(t, "a drain without --force", careful.Stderr, "declare no controller", pod.Name)
	if careful.ExitCode == 0 {
		t.Error("a drain without --force went well")
	}

	if err := drain.Interrupt(); err != nil {
		t.Fatal(err)
	}
	finish(t, drain)
	(&application{node: a.node}).closeNode(t)
	kubectl(t, "alice", "uncordon", a.node)

	a.waitGivenBack(t, pod)
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	saysAll(t, "the event", waitEvent(t, pod, "PodGivenBack").Note, "was given back to ReplicaSet web-5d4f")
	lives(t, pod)
	a.endpoints.Await(t, 1)
	a.counted(t, 1, 1, 0)
	a.untouched(t)
}

// While a Rollout rolls out, two of its ReplicaSets want pods. Nothing is set free then.
func TestARolloutsPodWaitsForTheRollout(t *testing.T) {
	shareManager(t)
	a := newRolled(t, 1, nobody)
	pod := &a.pods[0]
	canary := a.revision("77c9", 1)
	create(t, canary)
	readyPods(t, a.namespace, 2, a.node)
	a.counted(t, 2, 2, 0)
	elsewhere := addNodes(t, a.namespace, 1)[0]

	drain := startDrain(t, "alice", a.node)
	waitRequest(t, pod, "waiting", func(er *v1alpha1.EvictionRequest) bool {
		return surgeSays(er) == "Waiting for the rollout of the owner of ReplicaSet web-5d4f (ReplicaSet web-77c9 wants pods, too)."
	})
	lives(t, pod)
	if most := a.surging.Most(t); most != 0 {
		t.Errorf("%d pods were set free", most)
	}

	scaleSet(t, canary, 0) // It is aborted.
	finishWell(t, drain)
	gone(t, pod)
	readyPods(t, a.namespace, 1, elsewhere)
	a.untouched(t)
}

// A Rollout that scales the ReplicaSet down has its new pods, or wants none.
func TestARolloutInTheMiddleTakesTheFreePodAlong(t *testing.T) {
	shareManager(t)
	a := newRolled(t, 1, nobody)
	pod := &a.pods[0]
	drain := startDrain(t, "alice", a.node)
	a.waitFree(t, pod)
	scaleSet(t, a.set, 0)
	finishWell(t, drain)
	gone(t, pod)
	waitRequest(t, pod, "done with", surgeSaid("ReplicaSet web-5d4f is scaled to 0."))
}

// A pod that is free is collected with its ReplicaSet all the same.
func TestADeletedReplicaSetTakesTheFreePodAlong(t *testing.T) {
	shareManager(t)
	a := newRolled(t, 1, nobody)
	pod := &a.pods[0]
	drain := startDrain(t, "alice", a.node)
	a.waitFree(t, pod)
	if err := admin.Delete(t.Context(), a.set.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	finishWell(t, drain)
	gone(t, pod)
	eventually(t, "the ReplicaSet to go", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(a.set), &appsv1.ReplicaSet{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// A pod whose Service needs the label that it would lose stays as it is.
func TestAServiceByRevisionKeepsItsPods(t *testing.T) {
	shareManager(t)
	a := newRolled(t, 1, nobody)
	pod := &a.pods[0]
	addNodes(t, a.namespace, 1)
	// As Argo Rollouts changes an active or stable Service (rollout/service.go, switchServiceSelector).
	create(t, serviceOf(a.namespace, "web-active", map[string]string{builder.AppLabel: "web", rolloutsTie: "5d4f"}))

	startDrain(t, "alice", a.node)
	waitRequest(t, pod, "told why", surgeSaid("Not replaced beforehand: Service web-active selects its pods by the label rollouts-pod-template-hash"))
	waitRequest(t, pod, "blocked", blocked)
	lives(t, pod)
	if most := a.surging.Most(t); most != 0 {
		t.Errorf("%d pods were set free", most)
	}
}

// Where pods cannot be taken from their owner, the message says what to do.
func TestOwnersThatAreNotReplacedForAreToldWhy(t *testing.T) {
	shareManager(t)
	cases := map[string]struct {
		pod  func(t *testing.T, namespace, node string) *corev1.Pod
		want string
	}{
		"a ReplicaSet of nobody": {
			func(t *testing.T, namespace, node string) *corev1.Pod {
				t.Helper()
				create(t, replicaSetOf(namespace, "5d4f", 1))
				return &readyPods(t, namespace, 1, node)[0]
			},
			"Not replaced beforehand: ReplicaSet web-5d4f has no owner that rolls it out: use a Deployment instead of it, or run more replicas than its budget wants.",
		},
		"a CloneSet of OpenKruise": {
			func(t *testing.T, namespace, node string) *corev1.Pod {
				t.Helper()
				installOwner(t, cloneSets, "clonesets")
				owner := vmcrds.New(cloneSets, namespace, "web", map[string]any{"spec.replicas": int64(1)})
				create(t, owner)
				return createPod(t, builder.Pod(namespace, "web-x7").Node(node).Label(builder.AppLabel, "web").Label(surge.OptInLabel, "enabled").
					Owner(*metav1.NewControllerRef(owner, cloneSets)).Obj())
			},
			"Not replaced beforehand: CloneSet web has a surge of its own: set spec.updateStrategy.maxSurge, and label the pod apps.kruise.io/specified-delete=true before the drain.",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kube.Namespace(t)
			node := addNodes(t, namespace, 1)[0]
			pod := tc.pod(t, namespace, node)

			startDrain(t, "alice", node)
			gone(t, pod)
			waitRequest(t, pod, "told why", surgeSaid(tc.want))
			if got := waitEvent(t, pod, "SurgeDeclined").Note; got != tc.want {
				t.Errorf("the event says %q, want %q", got, tc.want)
			}
		})
	}
}
