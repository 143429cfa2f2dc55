//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// application is a Deployment with a Service, an autoscaler and a budget that never
// allows a disruption, all of whose pods are on one node.
type application struct {
	namespace, node string
	deployment      *appsv1.Deployment
	autoscaler      *autoscalingv2.HorizontalPodAutoscaler
	pods            []corev1.Pod
	endpoints       *cluster.Counts
	// surging are the pods that are handed up.
	surging *cluster.Counts
}

// newApplication makes one that surges, and waits until it serves.
func newApplication(t *testing.T, replicas int32, change ...func(*builder.DeploymentWrapper)) *application {
	t.Helper()
	a := &application{namespace: kube.Namespace(t)}
	a.node = addNodes(t, a.namespace, 1)[0]
	w := builder.Deployment(a.namespace, "web").Replicas(replicas).Rolling("1", "0").Pods(onNodesOf(a.namespace, func(p *builder.PodWrapper) {
		// A replacement takes long enough for a gap to be seen.
		p.Label(surge.OptInLabel, "enabled").Annotation(cluster.StartDelayAnnotation, "1s")
	}))
	for _, c := range change {
		c(w)
	}
	a.deployment = w.Obj()
	create(t, a.deployment)
	a.autoscaler = &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    &replicas, MaxReplicas: replicas + 3,
		},
	}
	create(t, a.autoscaler)
	a.pods = readyPods(t, a.namespace, int(replicas), a.node)
	create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{builder.AppLabel: "web"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	})
	a.endpoints = kube.WatchCounts(t, a.namespace, &discoveryv1.EndpointSliceList{}, cluster.ReadyEndpoints)
	a.surging = kube.WatchCounts(t, a.namespace, &corev1.PodList{}, isHandedUp)
	a.endpoints.Await(t, int(replicas))
	createBudget(t, builder.Budget(a.namespace, "web").Selects(builder.AppLabel, "web").MaxUnavailable("0").Obj(), replicas)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(a.deployment), a.deployment); err != nil {
		t.Fatal(err)
	}
	return a
}

// waitHandedUp waits until the pod is handed up and its ReplicaSet has made a
// replacement.
func (a *application) waitHandedUp(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" to be handed up", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		owner := metav1.GetControllerOf(now)
		if now.UID != pod.UID || now.Annotations[surge.HandedUpAnnotation] == "" || owner == nil || owner.UID != a.deployment.UID {
			return fmt.Errorf("UID %s, owners %v, annotations %v", now.UID, now.OwnerReferences, now.Annotations)
		}
		return nil
	})
	eventually(t, "a replacement", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := admin.List(ctx, pods, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		if len(pods.Items) <= len(a.pods) {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		return nil
	})
}

// waitGivenBack waits until the pod is its ReplicaSet's again, and the surplus one
// is gone.
func (a *application) waitGivenBack(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" to be given back", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.UID != pod.UID || now.Annotations[surge.HandedUpAnnotation] != "" || !equality.Semantic.DeepEqual(now.OwnerReferences, pod.OwnerReferences) ||
			now.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] {
			return fmt.Errorf("UID %s, owners %v, labels %v, annotations %v", now.UID, now.OwnerReferences, now.Labels, now.Annotations)
		}
		pods := &corev1.PodList{}
		if err := admin.List(ctx, pods, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		if len(pods.Items) != len(a.pods) {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		return nil
	})
}

// untouched fails the test if anybody wrote to the Deployment or its autoscaler, or
// if fewer endpoints were Ready at any time than the Deployment has replicas.
func (a *application) untouched(t *testing.T) {
	t.Helper()
	deployment, autoscaler := &appsv1.Deployment{}, &autoscalingv2.HorizontalPodAutoscaler{}
	for _, pair := range []struct{ before, now client.Object }{{a.deployment, deployment}, {a.autoscaler, autoscaler}} {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pair.before), pair.now); err != nil {
			t.Fatal(err)
		}
		if pair.now.GetGeneration() != pair.before.GetGeneration() || pair.now.GetUID() != pair.before.GetUID() {
			t.Errorf("%T was changed: generation %d, was %d", pair.now, pair.now.GetGeneration(), pair.before.GetGeneration())
		}
	}
	a.neverBelow(t, len(a.pods))
}

func (a *application) neverBelow(t *testing.T, replicas int) {
	t.Helper()
	if least := a.endpoints.Least(t, replicas); least < replicas {
		t.Errorf("at one time only %d endpoints were Ready, want %d at any", least, replicas)
	}
}

// scale sets the replicas, as a user does.
func (a *application) scale(t *testing.T, replicas int) {
	t.Helper()
	if err := admin.Delete(t.Context(), a.autoscaler); err != nil { // It would scale back.
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := admin.Patch(t.Context(), a.deployment.DeepCopy(), patch); err != nil {
		t.Fatal(err)
	}
}

// rollOut changes the pod template.
func (a *application) rollOut(t *testing.T) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`))
	if err := admin.Patch(t.Context(), a.deployment.DeepCopy(), patch); err != nil {
		t.Fatal(err)
	}
}

func isHandedUp(object client.Object) int {
	if object.GetAnnotations()[surge.HandedUpAnnotation] == "" {
		return 0
	}
	return 1
}

// surgeSays is what the interceptor said last about a pod.
func surgeSays(er *v1alpha1.EvictionRequest) string {
	for _, report := range er.Status.Interceptors {
		if report.Name == surge.Name {
			return report.Message
		}
	}
	return ""
}

// surgeSaid wants that the interceptor has completed with that text.
func surgeSaid(text string) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool {
		return slices.Contains(er.Status.ProcessedInterceptors, surge.Name) && strings.Contains(surgeSays(er), text)
	}
}
