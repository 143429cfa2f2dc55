package evictor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// target is one incarnation of a pod.
type target struct {
	types.NamespacedName
	UID types.UID
}

// callFunc asks the API server to evict the target; the error is the server's
// answer.
type callFunc func(ctx context.Context, target target, gracePeriodSeconds *int64) error

// newCall calls the eviction subresource through a client of the core group,
// version v1. Every call carries the UID precondition (statement 77) and returns
// within the deadline, which must be positive.
//
// client-go would obey a Retry-After within the call, up to ten times: one unprocessed
// budget could hold a worker for 100 s (callers.md, section 5). So retries are disabled.
func newCall(client rest.Interface, deadline time.Duration) callFunc {
	return func(ctx context.Context, target target, gracePeriodSeconds *int64) error {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		return client.Post().
			Namespace(target.Namespace).Resource("pods").Name(target.Name).SubResource("eviction").
			Body(&policyv1.Eviction{
				TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
				ObjectMeta: metav1.ObjectMeta{Namespace: target.Namespace, Name: target.Name},
				DeleteOptions: &metav1.DeleteOptions{
					GracePeriodSeconds: gracePeriodSeconds,
					Preconditions:      metav1.NewUIDPreconditions(string(target.UID)),
				},
			}).
			MaxRetries(0).
			Do(ctx).
			Error()
	}
}

// NewEviction returns a function that calls the eviction subresource once, as newCall does, with
// the pod's own grace period and DefaultTimeout: for pods that get no request.
func NewEviction(config *rest.Config) (func(ctx context.Context, pod types.NamespacedName, uid types.UID) error, error) {
	calls, err := newClient(config)
	if err != nil {
		return nil, err
	}
	call := newCall(calls, DefaultTimeout)
	return func(ctx context.Context, pod types.NamespacedName, uid types.UID) error {
		return call(ctx, target{NamespacedName: pod, UID: uid}, nil)
	}, nil
}

// newClient returns the client for newCall. It has no rate limit: the number of workers
// and the server's priority and fairness limit us.
func newClient(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	set, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for evictions: %w", err)
	}
	return set.RESTClient(), nil
}

// largestGracePeriod is the largest termination grace period that a requester asked for,
// nil for the pod's own, which is what a requester without one wants.
func largestGracePeriod(pod *corev1.Pod, requesters []v1alpha1.Requester) *int64 {
	wishes := make([]*int64, 0, len(requesters))
	for _, r := range requesters {
		wishes = append(wishes, r.GracePeriodSeconds)
	}
	return translate.LongestGrace(translate.OwnGrace(pod), wishes...)
}

// PodStateOf returns the state of the pod that the cache has under the target's name,
// nil if none.
func PodStateOf(pod *corev1.Pod, uid types.UID) PodState {
	switch {
	case pod == nil:
		return PodUnseen
	case pod.UID != uid:
		return PodReplaced
	case pods.HasEnded(pod):
		return PodTerminal
	case pod.DeletionTimestamp != nil:
		return PodTerminating
	case pods.StaysOnNode(pod):
		return PodUnsupported
	default:
		return PodRunning
	}
}
