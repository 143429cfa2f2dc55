package app

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

// nativeEvictions are the Evictions of Kubernetes' own API that count, by the UIDs of their pods,
// and the nodes of pods that have nothing else. The zero value is none.
type nativeEvictions struct {
	byPod map[types.UID]*lifecyclev1alpha1.Eviction
	nodes map[types.UID]string
}

// readNative reads them. The pods are only read where a pod has no request of ours, which would
// say its node.
func (o commands) readNative(ctx context.Context, c *cli.Connection, requests []v1alpha1.EvictionRequest) (nativeEvictions, error) {
	list, err := o.NativeEvictionsIfAllowed(ctx, c, client.InNamespace(ptr.Deref(o.Config.Namespace, "")))
	if err != nil {
		return nativeEvictions{}, err
	}
	evictions := make([]*lifecyclev1alpha1.Eviction, 0, len(list))
	for i := range list {
		evictions = append(evictions, &list[i])
	}
	found := nativeEvictions{byPod: turns.ByPod(evictions), nodes: map[types.UID]string{}}
	left := nativeEvictions{byPod: maps.Clone(found.byPod)}
	for i := range requests {
		if requests[i].Spec.Target.Pod != nil {
			left.taken(&requests[i])
		}
	}
	namespaces := map[string]bool{}
	for _, e := range left.byPod {
		namespaces[e.Namespace] = namespaces[e.Namespace] || turns.Runs(e)
	}
	for namespace, wanted := range namespaces {
		if !wanted {
			continue
		}
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(namespace)); err != nil && !apierrors.IsForbidden(err) {
			return found, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
		}
		for i := range pods.Items {
			found.nodes[pods.Items[i].UID] = pods.Items[i].Spec.NodeName
		}
	}
	return found, nil
}

// taken is the Eviction of the pod of a request, nil if there is none; it is told with it. One that
// runs although the request has ended is about a later wish, and stays.
func (n nativeEvictions) taken(er *v1alpha1.EvictionRequest) *lifecyclev1alpha1.Eviction {
	e := n.byPod[er.Spec.Target.Pod.UID]
	if e == nil || v1alpha1.IsFinished(er) && turns.Runs(e) {
		return nil
	}
	delete(n.byPod, er.Spec.Target.Pod.UID)
	return e
}

// alone are those that run and were not taken.
func (n nativeEvictions) alone() []EvictionState {
	var found []EvictionState
	for _, uid := range slices.Sorted(maps.Keys(n.byPod)) {
		if e := n.byPod[uid]; turns.Runs(e) {
			state := evictionState(nil, e)
			state.Node = n.nodes[uid]
			found = append(found, state)
		}
	}
	return found
}

// evictionState is the eviction of one pod: of the request, the Eviction, or both.
func evictionState(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction) EvictionState {
	u := turns.Observe(er, e)
	s := EvictionState{State: string(u.State), Interceptor: u.Interceptor, Position: u.Position, Total: u.Total, Message: u.Message, Requesters: []string{}}
	if !u.ExpectedFinishTime.IsZero() {
		s.Expected = &u.ExpectedFinishTime
	}
	if !u.Deadline.IsZero() {
		s.Deadline = &u.Deadline
	}
	s.Requesters = append(s.Requesters, turns.Requesters(er, e)...)
	if e != nil {
		s.Eviction, s.Turns = e.Name, turns.Of(er, e, nil)
		s.Namespace, s.Pod, s.Created = e.Namespace, e.Spec.Target.Pod.Name, e.CreationTimestamp.Time
	}
	if er != nil {
		s.Namespace, s.Pod, s.Created, s.Request, s.Node = er.Namespace, er.Spec.Target.Pod.Name, er.CreationTimestamp.Time, er.Name, er.Status.NodeName
	}
	return s
}
