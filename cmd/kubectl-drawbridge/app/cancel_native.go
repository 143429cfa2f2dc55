package app

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
)

// wishes are what asks for the eviction of a pod.
type wishes struct {
	pod *corev1.Pod
	// request is nil if there is nothing to withdraw from it.
	request *v1alpha1.EvictionRequest
	// native are those of Kubernetes' own API, without the ones that follow the request.
	native []lifecyclev1alpha1.EvictionRequest
}

// requesters are the names of who asks.
func (w wishes) requesters() (names []string) {
	if w.request != nil {
		for _, r := range w.request.Spec.Requesters {
			if r.Name != v1alpha1.NativeInterceptor || len(w.native) == 0 { // It stands for those that follow.
				names = append(names, r.Name)
			}
		}
	}
	for i := range w.native {
		names = append(names, w.native[i].Spec.Requester)
	}
	return names
}

// nativeWishes are the native EvictionRequests that want the pod evicted. Those that Drawbridge has
// made for a request of its own go with that.
func (o commands) nativeWishes(ctx context.Context, c *cli.Connection, pod *corev1.Pod) ([]lifecyclev1alpha1.EvictionRequest, error) {
	all, err := o.NativeRequestsIfAllowed(ctx, c, client.InNamespace(pod.Namespace))
	return slices.DeleteFunc(all, func(r lifecyclev1alpha1.EvictionRequest) bool {
		return r.Spec.Target.Pod == nil || r.Spec.Target.Pod.UID != pod.UID || !native.Wants(&r) || native.WishOwner(&r) != ""
	}), err
}

// withdraw takes all of it back, whoever has asked. The native wishes go first: while there are any,
// Drawbridge asks in their name.
func (w wishes) withdraw(ctx context.Context, c *cli.Connection) error {
	optimistic := client.MergeFromWithOptimisticLock{}
	for i := range w.native {
		r := w.native[i].DeepCopy()
		r.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentWithdrawn
		err := c.Patch(ctx, r, client.MergeFromWithOptions(&w.native[i], optimistic), client.FieldOwner(cli.FieldOwner))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("withdraw evictionrequest.lifecycle.k8s.io/%s of %s: %w", r.Name, r.Spec.Requester, err)
		}
	}
	if w.request == nil {
		return nil
	}
	er := w.request.DeepCopy()
	er.Spec.Requesters = nil
	if err := c.Patch(ctx, er, client.MergeFromWithOptions(w.request, optimistic), client.FieldOwner(cli.FieldOwner)); err != nil {
		return fmt.Errorf("withdraw the request for pod %s: %w", w.pod.Name, err)
	}
	return nil
}

// print prints the names of what was withdrawn.
func (w wishes) print(o commands) error {
	for i := range w.native {
		if err := o.PrintObject(&w.native[i]); err != nil {
			return err
		}
	}
	if w.request == nil {
		return nil
	}
	return o.PrintObject(w.request)
}

// nativeOutcome is what has become of the native Eviction of a pod whose wishes are withdrawn. For
// those who may not look it goes on.
func nativeOutcome(ctx context.Context, c *cli.Connection, pod *corev1.Pod) (v1alpha1.RequestState, error) {
	var list lifecyclev1alpha1.EvictionList
	switch err := c.List(ctx, &list, client.InNamespace(pod.Namespace)); {
	case apierrors.IsForbidden(err):
		return v1alpha1.StateIntercepting, nil
	case err != nil:
		return "", fmt.Errorf("list evictions.lifecycle.k8s.io: %w", err)
	}
	switch e := turns.ByPod(turns.Pointers(list.Items))[pod.UID]; {
	case e == nil:
		return v1alpha1.StateCanceled, nil
	case turns.Runs(e):
		return v1alpha1.StateIntercepting, nil
	default:
		return v1alpha1.StateEvicted, nil
	}
}
