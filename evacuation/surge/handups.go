package surge

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// handUps knows which pods are handed up: those in the cache, and those that we are
// handing up or have handed up before the cache shows it. The latter only keep two
// workers from taking the same place.
type handUps struct {
	cache client.Reader

	mu   sync.Mutex
	held map[types.UID]hold
}

// hold is a taken place that the cache may not show.
type hold struct {
	pod        types.NamespacedName
	deployment types.UID
	// version is the pod's version after it was handed up; empty while that is in
	// progress.
	version string
}

// account is the count for one Deployment, or for one ReplicaSet that is treated like one.
type account struct {
	// pods of it that are handed up or set free.
	pods map[types.UID]bool
	// all pods of the cluster that are.
	all map[types.UID]bool
}

// others is how many pods are handed up besides this one.
func (a account) others(pod types.UID) occupied {
	o := occupied{deployment: len(a.pods), cluster: len(a.all)}
	if a.pods[pod] {
		o.deployment--
	}
	if a.all[pod] {
		o.cluster--
	}
	return o
}

// holds reports whether we have handed the pod up and the cache may not show it yet.
func (u *handUps) holds(pod types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.held[pod]
	return ok
}

// account counts the pods of one owner. A pod counts until it is gone or has failed.
func (u *handUps) account(ctx context.Context, d *appsv1.Deployment) (account, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count(ctx, d)
}

// take takes a place for the pod if the count allows it.
func (u *handUps) take(ctx context.Context, d *appsv1.Deployment, pod *corev1.Pod, allowed func(occupied) bool) (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a, err := u.count(ctx, d)
	if err != nil || !allowed(a.others(pod.UID)) {
		return false, err
	}
	u.held[pod.UID] = hold{pod: client.ObjectKeyFromObject(pod), deployment: d.UID}
	return true, nil
}

// keep remembers the version in which the cache first shows that the pod is handed up.
func (u *handUps) keep(pod types.UID, version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if h, ok := u.held[pod]; ok {
		h.version = version
		u.held[pod] = h
	}
}

// release gives a place back.
func (u *handUps) release(pod types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.held, pod)
}

// count reads the cache while the lock is held: a place is released only for what this
// read shows.
func (u *handUps) count(ctx context.Context, d *appsv1.Deployment) (account, error) {
	list := &corev1.PodList{}
	if err := u.cache.List(ctx, list, client.MatchingFields{handedUpIndex: handedUpValue}, client.UnsafeDisableDeepCopy); err != nil {
		return account{}, fmt.Errorf("list the pods that are handed up: %w", err)
	}
	a := account{pods: map[types.UID]bool{}, all: map[types.UID]bool{}}
	for i := range list.Items {
		pod := &list.Items[i]
		a.all[pod.UID] = true
		if holderOf(pod) == d.UID {
			a.pods[pod.UID] = true
		}
	}
	for uid, h := range u.held {
		shown, err := u.shows(ctx, uid, h)
		switch {
		case err != nil:
			return account{}, err
		case shown:
			delete(u.held, uid)
		default:
			a.all[uid] = true
			if h.deployment == d.UID {
				a.pods[uid] = true
			}
		}
	}
	return a, nil
}

// shows reports whether the cache is as new as the place that was taken.
func (u *handUps) shows(ctx context.Context, uid types.UID, h hold) (bool, error) {
	pod, err := find(ctx, u.cache, &corev1.Pod{}, h.pod, uid)
	switch {
	case err != nil:
		return false, err
	case pod == nil || pods.HasEnded(pod):
		return true, nil // It is gone or ending.
	case h.version == "":
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, h.version)
	if err != nil {
		// Before Kubernetes 1.35, the order of versions is not guaranteed; then compare
		// the state itself.
		_, up := handedUp(pod)
		return up, nil //nolint:nilerr // See above.
	}
	return order >= 0, nil
}
