package surge

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// subject is the pod a decision is about.
type subject struct {
	pod types.NamespacedName
	uid types.UID
	// request is the name of the EvictionRequest, requestUID its UID.
	request     types.NamespacedName
	requestUID  types.UID
	activatedAt time.Time
}

// gather reads the input of a decision about a pod. If live, the pod, its ReplicaSet
// and its Deployment are read from the API server; the other pods always come from the
// cache.
func (s *Surge) gather(ctx context.Context, about subject, live bool) (*input, error) {
	in := &input{now: s.Clock.Now(), policy: s.Policy, live: live, request: about.requestUID, activatedAt: about.activatedAt}
	var reader client.Reader = s.Client
	if live {
		reader = s.APIReader
	}
	var err error
	if in.pod, err = find(ctx, reader, &corev1.Pod{}, about.pod, about.uid); err != nil || in.pod == nil {
		return in, err
	}
	set, deployment := ownersOf(in.pod)
	if in.set, err = find(ctx, reader, &appsv1.ReplicaSet{}, keyOf(about.pod.Namespace, set.Name), set.UID); err != nil {
		return nil, err
	}
	if deployment.UID == "" && in.set != nil {
		deployment = deploymentOf(in.set)
	}
	if in.deployment, err = find(ctx, reader, &appsv1.Deployment{}, keyOf(about.pod.Namespace, deployment.Name), deployment.UID); err != nil {
		return nil, err
	}
	if in.deployment != nil {
		if err := s.gatherPods(ctx, in); err != nil {
			return nil, err
		}
	}
	in.volumes = s.following.volumesOf(about.request, about.uid)
	if _, up := handedUp(in.pod); live && !up && !in.volumes.known {
		if in.volumes, err = s.observeVolumes(ctx, in.pod); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// gatherPods reads the Deployment's ReplicaSets, and their pods if they matter.
func (s *Surge) gatherPods(ctx context.Context, in *input) error {
	namespace := client.InNamespace(in.deployment.Namespace)
	sets := &appsv1.ReplicaSetList{}
	if err := s.Client.List(ctx, sets, namespace, client.MatchingFields{controllerIndex: string(in.deployment.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the ReplicaSets of Deployment %s: %w", in.deployment.Name, err)
	}
	account, err := s.handUps.account(ctx, in.deployment)
	if err != nil {
		return err
	}
	in.occupied = account.others(in.pod.UID)
	_, matter := handedUp(in.pod)
	if !matter {
		_, matter = failedBefore(in.pod, in.request)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		in.sets = append(in.sets, set.UID)
		if in.set != nil && set.UID == in.set.UID {
			set = in.set // May be newer.
		}
		in.replicas += int(ptr.Deref(set.Spec.Replicas, 1))
		if !matter {
			continue
		}
		pods := &corev1.PodList{}
		if err := s.Client.List(ctx, pods, namespace, client.MatchingFields{controllerIndex: string(set.UID)}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list the pods of ReplicaSet %s: %w", set.Name, err)
		}
		// The cache may still show a pod under its ReplicaSet that we have handed up.
		in.pods = append(in.pods, slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return account.pods[pod.UID] })...)
	}
	return nil
}

// observeVolumes reads the claims of a live pod.
func (s *Surge) observeVolumes(ctx context.Context, pod *corev1.Pod) (volumes, error) {
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range claimNames(pod) {
		claim := &corev1.PersistentVolumeClaim{}
		switch err := s.APIReader.Get(ctx, keyOf(pod.Namespace, name), claim); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return volumes{}, fmt.Errorf("get claim %s: %w", name, err)
		default:
			claims[name] = claim
		}
	}
	return judgeVolumes(pod, claims), nil
}

// find returns the object of that name and UID, nil if there is none.
func find[T client.Object](ctx context.Context, reader client.Reader, into T, key types.NamespacedName, uid types.UID) (T, error) {
	var none T
	if key.Name == "" || uid == "" {
		return none, nil
	}
	if err := reader.Get(ctx, key, into); apierrors.IsNotFound(err) {
		return none, nil
	} else if err != nil {
		return none, fmt.Errorf("get %T %s: %w", into, key, err)
	}
	if into.GetUID() != uid {
		return none, nil
	}
	return into, nil
}

// ownersOf are the ReplicaSet and the Deployment of a pod, as far as the pod shows.
func ownersOf(pod *corev1.Pod) (set, deployment owner) {
	if rec, up := handedUp(pod); up {
		return rec.ReplicaSet, rec.Deployment
	}
	if _, controller := controllerOf(pod); controller != nil && isReplicaSet(controller) {
		return owner{controller.Name, controller.UID}, owner{}
	}
	return owner{}, owner{}
}

// deploymentOf is the Deployment of a ReplicaSet.
func deploymentOf(set *appsv1.ReplicaSet) owner {
	for _, ref := range set.OwnerReferences {
		if ptr.Deref(ref.Controller, false) && isDeployment(&ref) {
			return owner{ref.Name, ref.UID}
		}
	}
	return owner{}
}
