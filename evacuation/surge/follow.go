package surge

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follower remembers which requests depend on which Deployments, so that an event wakes
// only those. It is only a hint: a new manager calls Evacuate for every active request
// immediately, and every request is called again after a minute.
type follower struct {
	mu sync.Mutex
	// requests by the UID of an owner whose events, and those of what it controls, they
	// want.
	requests map[types.UID]map[types.NamespacedName]bool
	// known is the reverse map, with what else is remembered.
	known map[types.NamespacedName]interest
}

// interest is what is remembered of one request.
type interest struct {
	pod     types.UID
	owners  []types.UID
	volumes volumes
}

// anyDeployment stands for all Deployments, for requests that wait for the cluster's
// limit.
const anyDeployment types.UID = "*"

// follow remembers what a request depends on.
func (f *follower) follow(request types.NamespacedName, in *input) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(request)
	if ended(in.pod) {
		return // It waits for nothing, and forget might never be called.
	}
	i := interest{pod: in.pod.UID, volumes: in.volumes}
	if in.policy.ClusterLimit > 0 {
		i.owners = append(i.owners, anyDeployment)
	}
	if in.deployment != nil {
		i.owners = append(i.owners, in.deployment.UID)
	}
	if in.above != "" {
		i.owners = append(i.owners, in.above)
	}
	i.owners = append(i.owners, in.sets...)
	f.known[request] = i
	for _, uid := range i.owners {
		if f.requests[uid] == nil {
			f.requests[uid] = map[types.NamespacedName]bool{}
		}
		f.requests[uid][request] = true
	}
}

// forget forgets a request.
func (f *follower) forget(request types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(request)
}

func (f *follower) drop(request types.NamespacedName) {
	for _, uid := range f.known[request].owners {
		delete(f.requests[uid], request)
		if len(f.requests[uid]) == 0 {
			delete(f.requests, uid)
		}
	}
	delete(f.known, request)
}

// volumesOf returns what is known about the volumes of a request's pod, which do not
// change.
func (f *follower) volumesOf(request types.NamespacedName, pod types.UID) volumes {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.known[request]; i.pod == pod {
		return i.volumes
	}
	return volumes{}
}

// by returns the requests that depend on these owners.
func (f *follower) by(owners ...types.UID) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []types.NamespacedName
	for _, uid := range owners {
		for key := range f.requests[uid] {
			keys = append(keys, key)
		}
	}
	return keys
}

// of maps an event of a pod, a ReplicaSet or a Deployment to the requests that depend
// on it.
func (f *follower) of(_ context.Context, obj client.Object) []types.NamespacedName {
	var owners []types.UID
	if controller := metav1.GetControllerOfNoCopy(obj); controller != nil {
		owners = append(owners, controller.UID)
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		owners = append(owners, o.UID)
	case *corev1.Pod:
		if _, ok := o.Annotations[HandedUpAnnotation]; ok {
			owners = append(owners, anyDeployment) // Its place may become free.
		}
		if rec, up := handedUp(o); up && rec.frees() {
			owners = append(owners, rec.ReplicaSet.UID)
		}
	}
	return f.by(owners...)
}
