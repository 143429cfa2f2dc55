//go:build unix

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// One replica behind a budget that allows nothing: without a surge, the drain never
// ends (kubernetes/kubernetes#66811).
func TestASingleReplicaIsReplacedBeforeItGoes(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]
	elsewhere := addNodes(t, a.namespace, 1)[0]

	finishWell(t, startDrain(t, "alice", a.node))
	gone(t, pod)
	readyPods(t, a.namespace, 1, elsewhere)
	waitEvent(t, pod, "PodHandedUp")
	waitEvent(t, a.deployment, "PodHandedUp")
	waitRequest(t, pod, "replaced", surgeSaid("Replaced: Deployment web has 1 of 1 replicas available without this pod."))
	waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	a.untouched(t)
}

// Five replicas go one by one, as maxSurge says.
func TestReplicasAreReplacedOneByOne(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 5)
	elsewhere := addNodes(t, a.namespace, 1)[0]

	finishWell(t, startDrain(t, "alice", a.node))
	for i := range a.pods {
		gone(t, &a.pods[i])
	}
	readyPods(t, a.namespace, 5, elsewhere)
	a.untouched(t)
	if most := a.surging.Most(t); most != 1 {
		t.Errorf("%d pods were handed up at a time, want 1", most)
	}
}

// A namespace can opt in for its pods, and a pod out again.
func TestANamespaceOptsIn(t *testing.T) {
	shareManager(t)
	label := func(value string) func(*builder.DeploymentWrapper) {
		return func(w *builder.DeploymentWrapper) {
			if value == "" {
				delete(w.Spec.Template.Labels, surge.OptInLabel)
			} else {
				w.Spec.Template.Labels[surge.OptInLabel] = value
			}
		}
	}
	in, out := newApplication(t, 1, label("")), newApplication(t, 1, label("disabled"))
	for _, a := range []*application{in, out} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
		if err := admin.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"drawbridge.dev/surge":"enabled"}}}`))); err != nil {
			t.Fatal(err)
		}
		addNodes(t, a.namespace, 1)
	}

	startDrain(t, "alice", in.node)
	startDrain(t, "alice", out.node)
	gone(t, &in.pods[0])
	in.untouched(t)
	noRequest(t, &out.pods[0])
	lives(t, &out.pods[0])
}

// The scheduler has no room for a replacement: everything is as before, and the
// request and kubectl say why.
func TestWithoutARoomForTheReplacementEverythingIsUndone(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1, progressDeadline(20))
	pod := &a.pods[0]

	drain := startDrain(t, "alice", a.node)
	waitEvent(t, pod, "PodHandedUp") // For 20 seconds, which a look may miss.
	er := waitRequest(t, pod, "given up", surgeSaid("Not replaced beforehand: no replacement became available within 20s: 0/"))
	saysAll(t, "the interceptor's message", surgeSays(er), "nodes are available", "unschedulable")
	a.waitGivenBack(t, pod)
	saysAll(t, "the event", waitEvent(t, pod, "PodGivenBack").Note, "(failed)", "nodes are available")
	waitRequest(t, pod, "blocked", blocked)
	waitLine(t, drain, "Cannot evict pod as it would violate the pod's disruption budget.")
	drainGoesOn(t, drain)
	lives(t, pod)
	a.untouched(t)
}

// A quota is noticed at once, not only at the deadline.
func TestWithoutQuotaForTheReplacementEverythingIsUndone(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]
	addNodes(t, a.namespace, 1)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}
	create(t, quota)
	eventually(t, "the quota to be counted", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if used := quota.Status.Used[corev1.ResourcePods]; used.Value() != 1 {
			return fmt.Errorf("used %v", quota.Status.Used)
		}
		return nil
	})

	startDrain(t, "alice", a.node)
	waitEvent(t, pod, "PodHandedUp")
	er := waitRequest(t, pod, "given up", surgeSaid("Not replaced beforehand: ReplicaSet "))
	saysAll(t, "the interceptor's message", surgeSays(er), "cannot create a replacement", "exceeded quota: small")
	a.waitGivenBack(t, pod)
	lives(t, pod)
	a.untouched(t)
}

// An uncordon in the middle gives the pod back, and the replacement goes.
func TestUncordonGivesThePodBack(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]

	drain := startDrain(t, "alice", a.node)
	a.waitHandedUp(t, pod)
	if err := drain.Interrupt(); err != nil {
		t.Fatal(err)
	}
	finish(t, drain)
	a.closeNode(t)
	kubectl(t, "alice", "uncordon", a.node)

	a.waitGivenBack(t, pod)
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	saysAll(t, "the event", waitEvent(t, pod, "PodGivenBack").Note, "was given back to ReplicaSet")
	a.endpoints.Await(t, 1)
	a.untouched(t)
}

// A rollout goes on around a pod that was handed up, and replaces it.
func TestARolloutInTheMiddleReplacesThePod(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]

	drain := startDrain(t, "alice", a.node)
	a.waitHandedUp(t, pod)
	a.rollOut(t)
	a.waitRevision(t, "2")
	lives(t, pod)
	elsewhere := addNodes(t, a.namespace, 1)[0]

	finishWell(t, drain)
	gone(t, pod)
	// The old revision's replacement may be Ready first, and goes in the rollout's course.
	eventually(t, "the pod of the new revision", func(context.Context) error {
		for _, ready := range readyPods(t, a.namespace, 1, elsewhere) {
			if ready.Annotations["version"] != "2" {
				return fmt.Errorf("the pod is of the old revision: %v", ready.Annotations)
			}
		}
		return nil
	})
	a.neverBelow(t, 1)
}

// A pod of an old revision cannot be given back, and the new revision has no room. The
// drain hears of its budget in the end.
func TestARolloutThatNeverSucceedsDoesNotHoldTheDrainForEver(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]

	startDrain(t, "alice", a.node)
	a.waitHandedUp(t, pod)
	a.rollOut(t)
	a.waitRevision(t, "2")
	// Not before, or it might be given back before a slow machine rolls out.
	deadline := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"progressDeadlineSeconds":20}}`))
	if err := admin.Patch(t.Context(), a.deployment.DeepCopy(), deadline); err != nil {
		t.Fatal(err)
	}
	er := waitRequest(t, pod, "given up", surgeSaid("Not replaced beforehand: no replacement became available within 20s"))
	saysAll(t, "the interceptor's message", surgeSays(er), "cannot be given back, has been waited for as long again")
	waitRequest(t, pod, "blocked", blocked)
	lives(t, pod)
	a.neverBelow(t, 1)
}

// A pod of an old revision that nobody wants to drain any more cannot be given back.
// It serves until the new revision does, and goes then.
func TestAnUncordonAfterARolloutEvictsThePodLater(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]

	drain := startDrain(t, "alice", a.node)
	a.waitHandedUp(t, pod)
	a.rollOut(t)
	a.waitRevision(t, "2")
	killed(t, drain)
	a.closeNode(t)
	kubectl(t, "alice", "uncordon", a.node)
	waitRequest(t, pod, "asked for by the interceptor", wantedBy(surge.Name))
	waitEvent(t, pod, "PodNotGivenBack")
	lives(t, pod)

	addNodes(t, a.namespace, 1)
	gone(t, pod)
	a.neverBelow(t, 1)
}

// A Deployment that is scaled to nothing wants no replacement.
func TestAScaleDownInTheMiddle(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]
	drain := startDrain(t, "alice", a.node)
	a.waitHandedUp(t, pod)
	a.scale(t, 0)
	finishWell(t, drain)
	gone(t, pod)
	waitRequest(t, pod, "done with", surgeSaid("Deployment web is scaled to 0."))
}

// Whoever deletes the Deployment deletes its pods, handed up or not.
func TestADeletionInTheMiddle(t *testing.T) {
	shareManager(t)
	a := newApplication(t, 1)
	pod := &a.pods[0]
	drain := startDrain(t, "alice", a.node)
	a.waitHandedUp(t, pod)
	if err := admin.Delete(t.Context(), a.deployment.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	finishWell(t, drain)
	gone(t, pod)
	eventually(t, "the Deployment to go", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(a.deployment), &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// The limit of the cluster holds for all Deployments together.
func TestTheClustersLimitHolds(t *testing.T) {
	startManager(t, func(o *app.Options) { o.SurgeClusterLimit = 1 })
	first, second := newApplication(t, 2), newApplication(t, 2)
	startDrain(t, "alice", first.node)
	first.surging.Await(t, 1)
	startDrain(t, "alice", second.node)
	for i := range second.pods {
		waitRequest(t, &second.pods[i], "waiting", func(er *v1alpha1.EvictionRequest) bool {
			return surgeSays(er) == "Waiting for pods of other Deployments: the cluster's limit is 1 at a time."
		})
	}
	if most := second.surging.Most(t); most != 0 {
		t.Errorf("%d pods beyond the limit were handed up", most)
	}
	addNodes(t, first.namespace, 1)
	addNodes(t, second.namespace, 1)
	for _, a := range []*application{first, second} {
		gone(t, &a.pods[0])
		gone(t, &a.pods[1])
		a.untouched(t)
	}
}

// The manager makes the registration that the chart brings, and what it owns goes
// with the chart.
func TestTheRegistrationIsTheCharts(t *testing.T) {
	startManager(t, nil)
	registration := &v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: surge.Name}}
	eventually(t, "the registration", func(ctx context.Context) error {
		return admin.Get(ctx, client.ObjectKeyFromObject(registration), registration)
	})
	role := &rbacv1.ClusterRole{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: inst.Release + "-surge"}, role); err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: role.Name, UID: role.UID}}
	if diff := cmp.Diff(want, registration.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if err := admin.Delete(t.Context(), registration); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the registration again, accepted", func(ctx context.Context) error {
		again := &v1alpha1.EvictionInterceptor{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(registration), again); err != nil {
			return err
		}
		if again.UID == registration.UID {
			return fmt.Errorf("it is still the old one")
		}
		for _, c := range again.Status.Conditions {
			if c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", again.Status.Conditions)
	})
}

// closeNode keeps further pods from the node, whether it is cordoned or not.
func (a *application) closeNode(t *testing.T) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, testLabel))
	if err := admin.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node}}, patch); err != nil {
		t.Fatal(err)
	}
}

// progressDeadline sets how long a replacement may take.
func progressDeadline(seconds int32) func(*builder.DeploymentWrapper) {
	return func(w *builder.DeploymentWrapper) { w.Spec.ProgressDeadlineSeconds = &seconds }
}

// waitRevision waits until the Deployment's controller has begun a rollout.
func (a *application) waitRevision(t *testing.T, revision string) {
	t.Helper()
	eventually(t, "revision "+revision, func(ctx context.Context) error {
		now := &appsv1.Deployment{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(a.deployment), now); err != nil {
			return err
		}
		if got := now.Annotations["deployment.kubernetes.io/revision"]; got != revision {
			return fmt.Errorf("revision %s", got)
		}
		return nil
	})
}
