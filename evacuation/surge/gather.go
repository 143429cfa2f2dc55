package surge

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// and its Deployment are read from the API server; the other pods and ReplicaSets always
// come from the cache.
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
	if err := gatherOwners(ctx, reader, in); err != nil {
		return nil, err
	}
	if in.deployment != nil {
		if err := s.gatherPods(ctx, in); err != nil {
			return nil, err
		}
	}
	in.volumes = s.following.volumesOf(about.request, about.uid)
	if _, up := handedUp(in.pod); live && !up {
		if err := s.observe(ctx, in); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// gatherOwners reads the pod's ReplicaSet and its Deployment, which may be the same.
func gatherOwners(ctx context.Context, reader client.Reader, in *input) (err error) {
	namespace := in.pod.Namespace
	set, deployment := ownersOf(in.pod)
	if in.set, err = find(ctx, reader, &appsv1.ReplicaSet{}, keyOf(namespace, set.Name), set.UID); err != nil {
		return err
	}
	if deployment.UID == "" && in.set != nil {
		deployment = deploymentOf(in.set)
	}
	if deployment.UID != "" {
		in.deployment, err = find(ctx, reader, &appsv1.Deployment{}, keyOf(namespace, deployment.Name), deployment.UID)
		return err
	}
	// A pod that is free already counts for its ReplicaSet, whatever became of that.
	if _, up := handedUp(in.pod); in.set != nil && (up || mayBeLeft(in.set)) {
		in.deployment = asDeployment(in.set)
	}
	return nil
}

// observe reads from the API server what a pod is asked for before it is taken from its
// ReplicaSet. Only the pod whose place is free is asked, so it costs a call per pod.
func (s *Surge) observe(ctx context.Context, in *input) (err error) {
	if !in.volumes.known {
		if in.volumes, err = s.observeVolumes(ctx, in.pod); err != nil {
			return err
		}
	}
	if in.setsFree() {
		services := &corev1.ServiceList{}
		if err := s.APIReader.List(ctx, services, client.InNamespace(in.pod.Namespace)); err != nil {
			return fmt.Errorf("list the Services of namespace %s: %w", in.pod.Namespace, err)
		}
		in.service = serviceBy(in.tie(), in.pod, services.Items)
	}
	return nil
}

// setsOf reads the Deployment's ReplicaSets. If a ReplicaSet is treated like a Deployment,
// that is the only one, and whether its owner has another that wants pods is noted.
func (s *Surge) setsOf(ctx context.Context, in *input) ([]appsv1.ReplicaSet, error) {
	of := in.deployment.UID
	if in.setsFree() {
		above := metav1.GetControllerOfNoCopy(in.set)
		if above == nil {
			return []appsv1.ReplicaSet{*in.set}, nil
		}
		in.above, of = above.UID, above.UID
	}
	sets := &appsv1.ReplicaSetList{}
	if err := s.Client.List(ctx, sets, client.InNamespace(in.deployment.Namespace), client.MatchingFields{controllerIndex: string(of)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the ReplicaSets that matter to %s: %w", in.named(), err)
	}
	if in.setsFree() {
		in.rival = rivalOf(in.set, sets.Items)
		return []appsv1.ReplicaSet{*in.set}, nil
	}
	return sets.Items, nil
}

// gatherPods reads the Deployment's ReplicaSets, and their pods if they matter.
func (s *Surge) gatherPods(ctx context.Context, in *input) error {
	namespace := client.InNamespace(in.deployment.Namespace)
	sets, err := s.setsOf(ctx, in)
	if err != nil {
		return err
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
	for i := range sets {
		set := &sets[i]
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
