package budget

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Kinds are the kinds that budgets need informers of, besides pods, nodes and
// EvictionRequests: the budgets, and the owners whose scale says how many pods should run.
func Kinds() []client.Object {
	return []client.Object{
		&v1alpha1.EvictionBudget{},
		&appsv1.StatefulSet{}, &appsv1.ReplicaSet{}, &appsv1.Deployment{}, &corev1.ReplicationController{},
	}
}

// CacheOptions are the options of these informers. Of an owner they keep who it is, who owns
// it, and spec.replicas. Others who need more of it may use their own options: no decision
// depends on what is dropped here.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		// Managed fields have an entry for each grant.
		&v1alpha1.EvictionBudget{}:      {Transform: cache.TransformStripManagedFields()},
		&appsv1.StatefulSet{}:           {Transform: slim},
		&appsv1.ReplicaSet{}:            {Transform: slim},
		&appsv1.Deployment{}:            {Transform: slim},
		&corev1.ReplicationController{}: {Transform: slim},
	}
}

// slim keeps what is needed of an owner. Anything else is left as it is, such as what the
// informer makes of a deletion that it has missed.
func slim(obj any) (any, error) {
	switch full := obj.(type) {
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{TypeMeta: full.TypeMeta, ObjectMeta: slimMeta(&full.ObjectMeta), Spec: appsv1.StatefulSetSpec{Replicas: full.Spec.Replicas}}, nil
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{TypeMeta: full.TypeMeta, ObjectMeta: slimMeta(&full.ObjectMeta), Spec: appsv1.ReplicaSetSpec{Replicas: full.Spec.Replicas}}, nil
	case *appsv1.Deployment:
		return &appsv1.Deployment{TypeMeta: full.TypeMeta, ObjectMeta: slimMeta(&full.ObjectMeta), Spec: appsv1.DeploymentSpec{Replicas: full.Spec.Replicas}}, nil
	case *corev1.ReplicationController:
		return &corev1.ReplicationController{TypeMeta: full.TypeMeta, ObjectMeta: slimMeta(&full.ObjectMeta), Spec: corev1.ReplicationControllerSpec{Replicas: full.Spec.Replicas}}, nil
	}
	return obj, nil
}

func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		OwnerReferences: m.OwnerReferences, DeletionTimestamp: m.DeletionTimestamp,
	}
}
