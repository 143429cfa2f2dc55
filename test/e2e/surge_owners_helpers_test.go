//go:build unix

package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

var (
	// rollouts is the kind of Argo Rollouts, cloneSets one of OpenKruise. Both have a scale.
	rollouts  = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Rollout"}
	cloneSets = schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "CloneSet"}
)

// rolloutsTie is the label by which Argo Rollouts ties a pod to a ReplicaSet.
const rolloutsTie = "rollouts-pod-template-hash"

// installOwner installs a kind that has a scale.
func installOwner(t *testing.T, kind schema.GroupVersionKind, plural string) {
	t.Helper()
	crd := vmcrds.Definition(kind, plural, false)
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.HPAReplicas",
	}}
	if err := vmcrds.Install(t.Context(), admin, []*apiextensionsv1.CustomResourceDefinition{crd}); err != nil {
		t.Fatal(err)
	}
}

// rolled is the application of a Rollout, with a Service and a budget, all of whose pods are
// on one node. The test makes ReplicaSets as the controller of Rollouts
// does (argo-rollouts 9f8d111: rollout/sync.go, createDesiredReplicaSet). The pods are
// made by Kubernetes' own controller.
type rolled struct {
	namespace, node string
	rollout         *unstructured.Unstructured
	set             *appsv1.ReplicaSet
	pods            []corev1.Pod
	budget          *policyv1.PodDisruptionBudget
	endpoints       *cluster.Counts
	// surging are the pods that are free.
	surging *cluster.Counts
}

type limit = func(*builder.BudgetWrapper) *builder.BudgetWrapper

// nobody may be missing.
func nobody(w *builder.BudgetWrapper) *builder.BudgetWrapper { return w.MaxUnavailable("0") }

// newRolled makes one that surges, and waits until it serves.
func newRolled(t *testing.T, replicas int32, within limit) *rolled {
	t.Helper()
	installOwner(t, rollouts, "rollouts")
	a := &rolled{namespace: kube.Namespace(t)}
	a.node = addNodes(t, a.namespace, 1)[0]
	a.rollout = vmcrds.New(rollouts, a.namespace, "web", map[string]any{"spec.replicas": int64(replicas)})
	create(t, a.rollout)
	a.set = a.revision("5d4f", replicas)
	create(t, a.set)
	a.pods = readyPods(t, a.namespace, int(replicas), a.node)
	create(t, serviceOf(a.namespace, "web", map[string]string{builder.AppLabel: "web"}))
	a.endpoints = kube.WatchCounts(t, a.namespace, &discoveryv1.EndpointSliceList{}, cluster.ReadyEndpoints)
	a.surging = kube.WatchCounts(t, a.namespace, &corev1.PodList{}, isHandedUp)
	a.endpoints.Await(t, int(replicas))
	a.budget = createBudget(t, within(builder.Budget(a.namespace, "web").Selects(builder.AppLabel, "web")).Obj(), replicas)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(a.set), a.set); err != nil {
		t.Fatal(err)
	}
	return a
}

func serviceOf(namespace, name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}
}

// revision is a ReplicaSet of the Rollout.
func (a *rolled) revision(hash string, replicas int32) *appsv1.ReplicaSet {
	set := replicaSetOf(a.namespace, hash, replicas)
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(a.rollout, rollouts)}
	return set
}

// replicaSetOf is a ReplicaSet with the label of Argo Rollouts, and without an owner.
func replicaSetOf(namespace, hash string, replicas int32) *appsv1.ReplicaSet {
	template := builder.Deployment(namespace, "web").Pods(onNodesOf(namespace, func(p *builder.PodWrapper) {
		// A replacement takes long enough for a gap to be seen.
		p.Label(surge.OptInLabel, "enabled").Label(rolloutsTie, hash).Annotation(cluster.StartDelayAnnotation, "1s")
	})).Obj().Spec.Template
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-" + hash},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: "web", rolloutsTie: hash}},
			Template: template,
		},
	}
}

// waitFree waits until the pod has no controller, and its ReplicaSet has made another one.
func (a *rolled) waitFree(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" to be free", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		owned := len(now.OwnerReferences) == 1 && now.OwnerReferences[0].UID == a.set.UID
		if now.UID != pod.UID || now.Annotations[surge.HandedUpAnnotation] == "" || metav1.GetControllerOf(now) != nil || !owned || now.Labels[rolloutsTie] != "" {
			return fmt.Errorf("UID %s, owners %v, labels %v, annotations %v", now.UID, now.OwnerReferences, now.Labels, now.Annotations)
		}
		return a.count(ctx, len(a.pods)+1)
	})
}

// waitGivenBack waits until the pod is its ReplicaSet's again, and the surplus one is gone.
func (a *rolled) waitGivenBack(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" to be given back", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.UID != pod.UID || now.Annotations[surge.HandedUpAnnotation] != "" || !equality.Semantic.DeepEqual(now.OwnerReferences, pod.OwnerReferences) ||
			now.Labels[rolloutsTie] != pod.Labels[rolloutsTie] {
			return fmt.Errorf("UID %s, owners %v, labels %v, annotations %v", now.UID, now.OwnerReferences, now.Labels, now.Annotations)
		}
		return a.count(ctx, len(a.pods))
	})
}

// count wants so many pods.
func (a *rolled) count(ctx context.Context, want int) error {
	pods := &corev1.PodList{}
	if err := admin.List(ctx, pods, client.InNamespace(a.namespace)); err != nil {
		return err
	}
	if len(pods.Items) != want {
		return fmt.Errorf("there are %d pods", len(pods.Items))
	}
	return nil
}

// counted waits until the disruption controller has counted so for the budget.
func (a *rolled) counted(t *testing.T, expected, healthy, allowed int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods to be expected, %d healthy and %d allowed to go", expected, healthy, allowed), func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(a.budget), a.budget); err != nil {
			return err
		}
		if s := a.budget.Status; s.ExpectedPods != expected || s.CurrentHealthy != healthy || s.DisruptionsAllowed != allowed {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}

// untouched fails the test if anybody wrote to the Rollout or its ReplicaSet, or if fewer
// endpoints were Ready at any time than it has replicas.
func (a *rolled) untouched(t *testing.T) {
	t.Helper()
	rollout := vmcrds.New(rollouts, a.namespace, "web", nil)
	for _, pair := range []struct{ before, now client.Object }{{a.rollout, rollout}, {a.set, &appsv1.ReplicaSet{}}} {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pair.before), pair.now); err != nil {
			t.Fatal(err)
		}
		if pair.now.GetGeneration() != pair.before.GetGeneration() || pair.now.GetUID() != pair.before.GetUID() {
			t.Errorf("%T was changed: generation %d, was %d", pair.now, pair.now.GetGeneration(), pair.before.GetGeneration())
		}
	}
	a.neverBelow(t, len(a.pods))
}

func (a *rolled) neverBelow(t *testing.T, replicas int) {
	t.Helper()
	if least := a.endpoints.Least(t, replicas); least < replicas {
		t.Errorf("at one time only %d endpoints were Ready, want %d at any", least, replicas)
	}
}

// scaleSet sets the replicas of a ReplicaSet, as its owner does.
func scaleSet(t *testing.T, set *appsv1.ReplicaSet, replicas int32) {
	t.Helper()
	patch(t, set, func() { set.Spec.Replicas = &replicas })
}
