package taints

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// pause is when to retry while the caches are not in sync, and how long changes of a pod or
// of its request are batched.
const pause = time.Second

// Controller asks for the eviction of pods that are about to be deleted because of a taint
// of their node, and withdraws when they are not any more. All fields are required.
//
// Its keys are pods. Pods that nobody intercepts, and those of nodes without a NoExecute
// taint, cost no API call. Each look at another one is a GET, because the cache has no
// tolerations.
type Controller struct {
	// Client reads from the cache. It needs the indexes of internal/index.
	Client client.Reader
	// APIReader reads from the API server.
	APIReader client.Reader
	// Requests joins and leaves EvictionRequests. It must not read from a cache.
	Requests client.WithWatch
	// Clock also drives the queue, which SetupWithManager makes.
	Clock clock.WithTicker
	// Resolver returns the interceptors of a pod.
	Resolver registration.Resolver
	// OnChange takes a function that is to be called, from any goroutine, when the
	// resolver may answer differently for a pod that has not changed.
	OnChange func(func())
	// Synced reports whether the caches and the resolver are in sync.
	Synced func() bool
	// Recorder records events on requests and pods.
	Recorder eventsclient.EventRecorder
}

var _ reconcile.Reconciler = &Controller{}

// Reconcile gathers, decides and applies for one pod.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	pod := &corev1.Pod{}
	if err := c.Client.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, ignoreNotFound("get pod", err)
	}
	node, err := c.nodeOf(ctx, pod)
	if err != nil || node == nil {
		return reconcile.Result{}, err // Without its node, it goes in another way.
	}
	taints := executing(node)
	joined, _, err := asked(ctx, c.Client, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(taints) == 0 {
		if !joined {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, c.withdraw(ctx, pod)
	}
	if !joined && !c.intercepted(pod) {
		return reconcile.Result{}, nil
	}
	live := &corev1.Pod{}
	if err := c.APIReader.Get(ctx, req.NamespacedName, live); err != nil {
		return reconcile.Result{}, ignoreNotFound("get pod", err)
	}
	if live.UID != pod.UID || skipped(live) {
		return reconcile.Result{}, nil
	}
	// The cache may not have seen what we wrote a moment ago.
	joined, until, err := asked(ctx, c.Requests, live)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := deletionOf(taints, live.Spec.Tolerations, placedAt(live), c.Clock.Now())
	switch step(d, joined, until) {
	case wishJoin:
		err = c.join(ctx, live, d)
	case wishWithdraw:
		err = c.withdraw(ctx, live)
	case wishNothing:
	}
	return reconcile.Result{}, err
}

// skipped reports whether a pod is none of our business: one that stays on its node is not
// evicted, and one that goes already cannot be asked for.
func skipped(pod *corev1.Pod) bool {
	return pods.StaysOnNode(pod) || pods.HasEnded(pod) || pod.DeletionTimestamp != nil
}

// nodeOf is the node of a pod that we care for, nil if there is none.
func (c *Controller) nodeOf(ctx context.Context, pod *corev1.Pod) (*corev1.Node, error) {
	if pod.Spec.NodeName == "" || skipped(pod) {
		return nil, nil //nolint:nilnil // That there is none is an answer.
	}
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return nil, ignoreNotFound("get node", err)
	}
	return node, nil
}

// intercepted reports whether the pod has interceptors. A missing registration changes the
// registry later, which enqueues the pod again.
func (c *Controller) intercepted(pod *corev1.Pod) bool {
	names, _ := c.Resolver.Resolve(pod)
	return len(names) > 0
}

// asked reports whether we are in the list of the pod's request, and until when.
func asked(ctx context.Context, reader client.Reader, pod *corev1.Pod) (joined bool, until time.Time, err error) {
	er := &v1alpha1.EvictionRequest{}
	if err := reader.Get(ctx, v1alpha1.RequestKey(pod), er); err != nil {
		return false, time.Time{}, ignoreNotFound("get EvictionRequest", err)
	}
	joined, until = entryOf(er)
	return joined, until, nil
}

// entryOf is our entry in a request, and its deadline.
func entryOf(er *v1alpha1.EvictionRequest) (joined bool, until time.Time) {
	for i := range er.Spec.Requesters {
		if entry := &er.Spec.Requesters[i]; entry.Name == v1alpha1.TaintEvictionRequester {
			if entry.Deadline != nil {
				until = entry.Deadline.Time
			}
			return true, until
		}
	}
	return false, until
}

func (c *Controller) requester(deadline time.Time) *requester.Requester {
	return &requester.Requester{Name: v1alpha1.TaintEvictionRequester, Client: c.Requests, Clock: c.Clock, Deadline: deadline}
}

// join asks, and says what cannot be done.
func (c *Controller) join(ctx context.Context, pod *corev1.Pod, d deletion) error {
	er, err := c.requester(d.At).Join(refused.About(ctx, refused.Pod(pod)), pod)
	switch {
	case errors.Is(err, requester.ErrTooManyRequesters), errors.Is(err, requester.ErrDeleting):
		// The eviction goes on without us, or the end of the request wakes us.
		log.FromContext(ctx).V(1).Info("Not asked for a pod that a taint deletes", "reason", err.Error())
		return nil
	case err != nil:
		return err //nolint:wrapcheck // It names requester and pod.
	}
	if joined, _ := entryOf(er); joined && !v1alpha1.IsFinished(er) {
		events.EmitOnBoth(c.Recorder, er, events.TaintDeletesPod(pod.Name, pod.Spec.NodeName, d.Taint, d.At))
	}
	return nil
}

func (c *Controller) withdraw(ctx context.Context, pod *corev1.Pod) error {
	return c.requester(time.Time{}).Withdraw(refused.About(ctx, refused.Pod(pod)), pod) //nolint:wrapcheck // It names requester and pod.
}

func ignoreNotFound(verb string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}
