package surge

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// Indexes of the informer cache.
const (
	// controllerIndex finds pods and ReplicaSets by the UID of their controller.
	controllerIndex = "surge.controller"
	// handedUpIndex finds the handed-up pods, all under handedUpValue. Ended pods take
	// no place and may stay for days.
	handedUpIndex = "surge.handed-up"
	handedUpValue = "true"
)

// Kinds are the kinds that the interceptor needs informers of, besides pods and
// EvictionRequests.
func Kinds() []client.Object {
	return []client.Object{&appsv1.Deployment{}, &appsv1.ReplicaSet{}}
}

// CacheOptions are the options of these informers: fields that no decision needs,
// mainly the pod template, are dropped.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&appsv1.Deployment{}: {Transform: slimDeployment},
		&appsv1.ReplicaSet{}: {Transform: slimReplicaSet},
	}
}

// setupIndexes adds the indexes to a cache that has not been started.
func setupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range indexes {
		if err := indexer.IndexField(ctx, i.object, i.name, i.extract); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.object, i.name, err)
		}
	}
	return nil
}

var indexes = []struct {
	object  client.Object
	name    string
	extract client.IndexerFunc
}{
	{&corev1.Pod{}, controllerIndex, controllerUID},
	{&appsv1.ReplicaSet{}, controllerIndex, controllerUID},
	{&corev1.Pod{}, handedUpIndex, handedUpState},
}

func controllerUID(obj client.Object) []string {
	if controller := metav1.GetControllerOfNoCopy(obj); controller != nil {
		return []string{string(controller.UID)}
	}
	return nil
}

func handedUpState(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	if _, up := handedUp(pod); !up || pods.HasEnded(pod) {
		return nil
	}
	return []string{handedUpValue}
}

// slimDeployment keeps identity, revision and how its pods are replaced.
func slimDeployment(obj any) (any, error) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return obj, nil
	}
	slim := &appsv1.Deployment{TypeMeta: d.TypeMeta, ObjectMeta: slimMeta(&d.ObjectMeta)}
	slim.Spec = appsv1.DeploymentSpec{
		Replicas:                d.Spec.Replicas,
		Strategy:                d.Spec.Strategy,
		MinReadySeconds:         d.Spec.MinReadySeconds,
		Paused:                  d.Spec.Paused,
		ProgressDeadlineSeconds: d.Spec.ProgressDeadlineSeconds,
	}
	slim.Status.ObservedGeneration = d.Status.ObservedGeneration
	slim.Status.Conditions = d.Status.Conditions
	return slim, nil
}

// slimReplicaSet keeps identity, revision, the Deployment, whether it can create pods,
// and how they are set free if it is of no Deployment.
func slimReplicaSet(obj any) (any, error) {
	set, ok := obj.(*appsv1.ReplicaSet)
	if !ok {
		return obj, nil
	}
	slim := &appsv1.ReplicaSet{TypeMeta: set.TypeMeta, ObjectMeta: slimMeta(&set.ObjectMeta)}
	slim.Spec.Replicas = set.Spec.Replicas
	slim.Status.Conditions = set.Status.Conditions
	if deploymentOf(set).UID != "" {
		return slim, nil
	}
	slim.Spec.MinReadySeconds = set.Spec.MinReadySeconds
	slim.Status.ObservedGeneration = set.Status.ObservedGeneration
	if label := tieOf(set); label != "" {
		slim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{label: set.Spec.Selector.MatchLabels[label]}}
	}
	return slim, nil
}

func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		OwnerReferences: m.OwnerReferences, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	if revision, ok := m.Annotations[revisionAnnotation]; ok {
		slim.Annotations = map[string]string{revisionAnnotation: revision}
	}
	return slim
}
