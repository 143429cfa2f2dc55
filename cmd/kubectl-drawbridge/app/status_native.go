package app

import (
	"context"
	"fmt"

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

// evictions are all that go on or are kept, and the nodes of pods whose requests do not say them.
type evictions struct {
	processes []turns.Process
	nodes     map[types.UID]string
}

// readEvictions reads them. Pods are only read where there is an Eviction of Kubernetes' own API
// without a request of ours, which would say the node.
func (o commands) readEvictions(ctx context.Context, c *cli.Connection) (evictions, error) {
	in := client.InNamespace(ptr.Deref(o.Config.Namespace, ""))
	var list v1alpha1.EvictionRequestList
	if err := c.List(ctx, &list, in); err != nil {
		return evictions{}, fmt.Errorf("list evictionrequests: %w", err)
	}
	native, err := o.NativeEvictionsIfAllowed(ctx, c, in)
	if err != nil {
		return evictions{}, err
	}
	found := evictionsOf(list.Items, native)
	read := map[string]bool{}
	for _, p := range found.processes {
		if p.Request != nil || read[p.Eviction.Namespace] {
			continue
		}
		read[p.Eviction.Namespace] = true
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(p.Eviction.Namespace)); err != nil && !apierrors.IsForbidden(err) {
			return evictions{}, fmt.Errorf("list pods of namespace %s: %w", p.Eviction.Namespace, err)
		}
		for i := range pods.Items {
			found.nodes[pods.Items[i].UID] = pods.Items[i].Spec.NodeName
		}
	}
	return found, nil
}

// evictionsOf joins what the two APIs say.
func evictionsOf(requests []v1alpha1.EvictionRequest, native []lifecyclev1alpha1.Eviction) evictions {
	return evictions{processes: turns.Processes(turns.Pointers(requests), turns.Pointers(native)), nodes: map[types.UID]string{}}
}

// state is one in one line.
func (all evictions) state(p turns.Process) EvictionState {
	pod, uid := p.Pod()
	u := p.Observe()
	s := EvictionState{
		Namespace: pod.Namespace, Pod: pod.Name, Node: all.nodes[uid], State: string(u.State),
		Interceptor: u.Interceptor, Position: u.Position, Total: u.Total, Message: u.Message, Requesters: append([]string{}, p.Requesters()...),
	}
	if !u.ExpectedFinishTime.IsZero() {
		s.Expected = &u.ExpectedFinishTime
	}
	if !u.Deadline.IsZero() {
		s.Deadline = &u.Deadline
	}
	if e := p.Eviction; e != nil {
		s.Eviction, s.Turns, s.Created = e.Name, p.Turns(nil), e.CreationTimestamp.Time
	}
	if er := p.Request; er != nil {
		s.Request, s.Node, s.Created = er.Name, er.Status.NodeName, er.CreationTimestamp.Time
	}
	return s
}
