package request

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// makePlan returns the participants to freeze, and the target as it was last seen. A request gets
// its plan once.
//
// Our webhook creates requests only for pods with interceptors, and notes which it saw. If
// our caches have none, or lack one of those, either they are behind (labels or a
// registration have just changed), or the webhook's were. Then the API server is asked,
// because the pod would be evicted without the missing interceptor.
func (r *Reconciler) makePlan(ctx context.Context, er *v1alpha1.EvictionRequest, target targetView) ([]process.Participant, targetView, error) {
	names, err := r.resolve(target.pod)
	if err != nil {
		return nil, target, err
	}
	if !contradicts(er, names) {
		return plan(names, r.Planned), target, nil
	}
	if target, err = r.liveTarget(ctx, target.pod); err != nil || target.pod == nil {
		return nil, target, err
	}
	names, planned, err := r.ResolveLive(ctx, target.pod)
	if err != nil {
		return nil, target, fmt.Errorf("resolve live who intercepts pod %s/%s: %w", target.pod.Namespace, target.pod.Name, err)
	}
	return plan(names, planned), target, nil
}

// plan returns the participants to freeze into status.targetInterceptors: those of the
// pod in their order, each once, at most 15 (ruling R1), and the default one last
// (statement 62). of is what the plan says of each.
func plan(names []string, of func(name string) v1alpha1.Interceptor) []process.Participant {
	var planned []process.Participant
	for _, name := range names {
		known := slices.ContainsFunc(planned, func(p process.Participant) bool { return p.Name == name })
		if known || name == v1alpha1.ImperativeEvictionInterceptor || len(planned) == v1alpha1.MaxPodInterceptors {
			continue
		}
		planned = append(planned, participant(of(name)))
	}
	return append(planned, participant(v1alpha1.Interceptor{Name: v1alpha1.ImperativeEvictionInterceptor}))
}

// contradicts reports whether the creator of the request saw interceptors that are not
// among these.
func contradicts(er *v1alpha1.EvictionRequest, names []string) bool {
	if len(names) == 0 && madeByWebhook(er) {
		return true
	}
	seen := er.Annotations[v1alpha1.SeenInterceptorsAnnotation]
	for name := range strings.SplitSeq(seen, ",") {
		if seen != "" && !slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// madeByWebhook reports whether a requester calls the eviction subresource: only those
// have a lease.
func madeByWebhook(er *v1alpha1.EvictionRequest) bool {
	return slices.ContainsFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.LeaseName != "" })
}

// liveTarget reads this pod from the API server.
func (r *Reconciler) liveTarget(ctx context.Context, cached *corev1.Pod) (targetView, error) {
	pod := &corev1.Pod{}
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(cached), pod)
	switch {
	case apierrors.IsNotFound(err):
		return targetView{Target: process.Target{Presence: process.Gone}}, nil
	case err != nil:
		return targetView{}, fmt.Errorf("get pod %s/%s live: %w", cached.Namespace, cached.Name, err)
	case pod.UID != cached.UID:
		return targetView{Target: process.Target{Presence: process.Replaced}, foundUID: pod.UID}, nil
	default:
		return presentTarget(pod), nil
	}
}
