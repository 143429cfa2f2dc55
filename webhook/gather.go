package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// gathered is an Input and what only the handler itself needs. Objects in it may
// be shared with the informers and are never changed.
type gathered struct {
	Input
	// leaseDue: the lease wants a renewal.
	leaseDue bool
}

// gather looks at memory only.
//
//	pod (by name) -- request (by the pod's UID) ----------- its plan decides
//	             \-- interceptors (by what the pod says) -- lease
//	predecessors (by name) -- the lease under which they were asked for
func (h *EvictionHandler) gather(ctx context.Context, call Call) (gathered, error) {
	in := gathered{Input: Input{
		Call: call, Own: h.OwnUsername != "" && call.Username == h.OwnUsername, Now: h.Clock.Now(),
		Replacement: h.Replacement, ReplacementWindow: h.ReplacementWindow, GroupsHidden: h.GroupsHidden,
		Start: h.starts.applies(call.Caller.Class), Stale: h.stale.has(call),
	}}
	var pod corev1.Pod
	err := h.Cached.Get(ctx, types.NamespacedName{Namespace: call.Namespace, Name: call.Pod}, &pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return in, h.gatherPredecessors(ctx, &in)
	}
	if err != nil {
		return in, fmt.Errorf("get pod %s/%s from cache: %w", call.Namespace, call.Pod, err)
	}
	in.Pod = &pod
	return in, h.gatherAround(ctx, &in)
}

// gatherAround fills in what belongs to the pod that was found.
func (h *EvictionHandler) gatherAround(ctx context.Context, in *gathered) error {
	in.Request, in.RequestSource, in.Interceptors = nil, Cached, nil
	in.Predecessors, in.LivePredecessor, in.LeftLease = nil, false, LeftLease{}
	in.Acts, in.AskFirst, in.Preflights = nil, false, nil
	in.Native = NativeTurn{}
	in.Written, in.LeaseName, in.LeaseAlive, in.leaseDue, in.Node = Written{}, "", false, false, translate.NodeView{}

	request, err := h.request(ctx, h.Cached, in.Pod, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	in.Request = request
	if in.Acts, err = h.acts(in.Call, in.Pod, request); err != nil {
		return err
	}
	if request == nil || request.DeletionTimestamp != nil || v1alpha1.IsFinished(request) {
		if err := h.resolve(in); err != nil {
			return err
		}
	}
	if h.Native != nil && (request != nil || len(in.Interceptors) > 0) {
		if in.Native, err = h.Native(ctx, v1alpha1.RequestKey(in.Pod), request); err != nil {
			return fmt.Errorf("look at the native Eviction of pod %s/%s: %w", in.Pod.Namespace, in.Pod.Name, err)
		}
	}
	if request == nil || !slices.ContainsFunc(request.Spec.Requesters, in.isEntry) {
		if err := h.gatherPredecessors(ctx, in); err != nil {
			return err
		}
	}
	if in.Request == nil && len(in.Interceptors) == 0 {
		return nil
	}
	if written, ok := h.written.Get(applyKey(*in)); ok {
		in.Written = written.(Written)
	}
	in.LeaseName = translate.LeaseName(in.Call.Caller.Requester, in.Pod.Spec.NodeName)
	in.LeaseAlive, in.leaseDue = h.leases.alive(ctx, in.LeaseName, in.Call.Caller)
	return nil
}

// resolve finds the pod's interceptors. While one may be missing, calls are denied for
// a moment.
func (h *EvictionHandler) resolve(in *gathered) (err error) {
	if in.Interceptors, err = whoIntercepts(h.Resolver, in.Pod); err != nil {
		return err
	}
	in.AskFirst = h.asksFirst(in.Interceptors)
	return nil
}

// whoIntercepts asks the resolver. An error means that a name may be missing.
func whoIntercepts(resolver registration.Resolver, pod *corev1.Pod) ([]string, error) {
	names, err := resolver.Resolve(pod)
	if err != nil {
		return names, fmt.Errorf("resolve who intercepts pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return names, nil
}

// acts returns the interceptors of the request's plan whose registrations name
// the caller. A plan that is not made yet is the resolver's answer.
func (h *EvictionHandler) acts(call Call, pod *corev1.Pod, request *v1alpha1.EvictionRequest) (names []string, err error) {
	if request == nil {
		return nil, nil
	}
	check := func(name string) {
		if registration, ok := h.Registrations.Registration(name); ok && slices.Contains(registration.Usernames, call.Username) {
			names = append(names, name)
		}
	}
	if len(request.Status.TargetInterceptors) == 0 {
		planned, err := whoIntercepts(h.Resolver, pod)
		if err != nil {
			return nil, err
		}
		for _, name := range planned {
			check(name)
		}
	}
	for _, target := range request.Status.TargetInterceptors {
		check(target.Name)
	}
	return names, nil
}

// gatherPredecessors finds the requests for other pods of that name.
func (h *EvictionHandler) gatherPredecessors(ctx context.Context, in *gathered) error {
	if !in.Call.byName() || in.Replacement == ReplacementEvict {
		return nil
	}
	var list v1alpha1.EvictionRequestList
	err := h.Cached.List(ctx, &list, client.InNamespace(in.Call.Namespace),
		client.MatchingFields{index.RequestsByPodName: in.Call.Pod}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list evictionrequests of pod %s/%s from cache: %w", in.Call.Namespace, in.Call.Pod, err)
	}
	in.Predecessors = list.Items
	ended := in.predecessor()
	if ended == nil {
		return nil
	}
	in.LeftLease = h.leases.left(ctx, in.entryIn(ended))
	if in.Replacement == ReplacementTooManyRequests && in.Pod != nil {
		// This answer comes again and again, and is taken back as soon as the
		// informer knows better.
		in.Node = h.leases.cachedNode(ctx, in.Pod.Spec.NodeName)
	}
	return nil
}

// observePredecessor replaces the predecessor in question by what the API server has.
func (h *EvictionHandler) observePredecessor(ctx context.Context, in *gathered) error {
	in.LivePredecessor = true
	cached := in.predecessor()
	if cached == nil {
		return nil
	}
	var request v1alpha1.EvictionRequest
	err := h.Live.Get(ctx, client.ObjectKeyFromObject(cached), &request)
	in.Predecessors = nil // It no longer exists.
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get evictionrequest %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	in.Predecessors = []v1alpha1.EvictionRequest{request}
	return nil
}

// request finds the request for a pod, nil if there is none. The schema ties its
// name to the pod's UID.
func (h *EvictionHandler) request(ctx context.Context, from client.Reader, pod *corev1.Pod, opts ...client.GetOption) (*v1alpha1.EvictionRequest, error) {
	var request v1alpha1.EvictionRequest
	err := from.Get(ctx, v1alpha1.RequestKey(pod), &request, opts...)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get evictionrequest %s/%s: %w", pod.Namespace, pod.UID, err)
	}
	return &request, nil
}

// observe makes the one live read that a decision needs.
func (h *EvictionHandler) observe(ctx context.Context, in *gathered, n Need) (err error) {
	switch n {
	case NeedLivePod:
		return h.observePod(ctx, in)
	case NeedLiveRequest:
		in.Request, err = h.request(ctx, h.Live, in.Pod)
		in.RequestSource = Live
		if err == nil && in.Request != nil {
			in.Acts, err = h.acts(in.Call, in.Pod, in.Request)
		}
		// The cached request may have hidden that there is something to resolve.
		return errors.Join(err, h.resolve(in))
	case NeedLiveNode:
		in.Node, err = h.leases.liveNode(ctx, in.Pod.Spec.NodeName)
		return err
	case NeedPredecessor:
		return h.observePredecessor(ctx, in)
	case NeedPreflights:
		return h.ask(ctx, in)
	case NeedStart:
		in.Start = h.starts.take(in.Pod.Spec.NodeName, in.Call.Caller.Class, in.Pod.UID)
	case NeedNothing:
	}
	return nil
}

func (h *EvictionHandler) observePod(ctx context.Context, in *gathered) error {
	before := in.Pod
	in.Pod, in.PodSource = nil, Live
	var pod corev1.Pod
	err := h.Live.Get(ctx, types.NamespacedName{Namespace: in.Call.Namespace, Name: in.Call.Pod}, &pod)
	if apierrors.IsNotFound(err) {
		in.Predecessors, in.LivePredecessor = nil, false
		return h.gatherPredecessors(ctx, in)
	}
	if err != nil {
		return fmt.Errorf("get pod %s/%s: %w", in.Call.Namespace, in.Call.Pod, err)
	}
	in.Pod, in.Preflights = &pod, nil // The answers were about the earlier pod.
	if !in.Call.meets(&pod) {
		h.stale.note(in.Call)
	}
	if before != nil && before.UID == pod.UID && before.Spec.NodeName == pod.Spec.NodeName {
		return nil
	}
	// Another pod, or one that was bound since: the lease depends on the node.
	return h.gatherAround(ctx, in)
}

// applyKey identifies a requester and one incarnation of a pod.
func applyKey(in gathered) string {
	return string(in.Pod.UID) + "/" + in.Call.Caller.Requester
}
