//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// observer writes down every state of the pods, requests and budgets of a namespace. It has
// nothing in common with the product: it watches by itself, goes on after a break
// where it has stopped, and says where it could not.
type observer struct {
	client    client.WithWatch
	namespace string
	tellf     func(format string, args ...any)

	cancel context.CancelFunc
	group  sync.WaitGroup

	mu       sync.Mutex
	pods     []PodSeen
	requests []RequestSeen
	budgets  []BudgetSeen
	zoning   []EvictionBudgetSeen
	jobs     map[types.UID]Entry
	// evictions and wishes are of lifecycle.k8s.io.
	evictions  []EvictionSeen
	wishes     []WishSeen
	lostThread bool

	podNow      objects[*corev1.Pod]
	erNow       objects[*v1alpha1.EvictionRequest]
	evictionNow objects[*lifecyclev1alpha1.Eviction]
	wishNow     objects[*lifecyclev1alpha1.EvictionRequest]
}

// startObserver watches from now on, lifecycle.k8s.io only if it is served.
func startObserver(c client.WithWatch, namespace string, native bool, tellf func(string, ...any)) *observer {
	ctx, cancel := context.WithCancel(context.Background())
	o := &observer{
		client: c, namespace: namespace, tellf: tellf, cancel: cancel,
		jobs: map[types.UID]Entry{},
	}
	o.group.Go(func() { o.watch(ctx, func() client.ObjectList { return &corev1.PodList{} }) })
	o.group.Go(func() { o.watch(ctx, func() client.ObjectList { return &v1alpha1.EvictionRequestList{} }) })
	o.group.Go(func() { o.watch(ctx, func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }) })
	o.group.Go(func() { o.watch(ctx, func() client.ObjectList { return &v1alpha1.EvictionBudgetList{} }) })
	o.group.Go(func() { o.watch(ctx, func() client.ObjectList { return &batchv1.JobList{} }) })
	if native {
		o.group.Go(func() { o.watch(ctx, func() client.ObjectList { return &lifecyclev1alpha1.EvictionList{} }) })
		o.group.Go(func() { o.watch(ctx, func() client.ObjectList { return &lifecyclev1alpha1.EvictionRequestList{} }) })
	}
	return o
}

func (o *observer) stop() {
	o.cancel()
	o.group.Wait()
}

// retryPause is the pause before what has failed is tried again.
const retryPause = 50 * time.Millisecond

// watch lists and then watches for as long as it goes.
func (o *observer) watch(ctx context.Context, list func() client.ObjectList) {
	for first := true; ctx.Err() == nil; first = false {
		items := list()
		if err := within(ctx, func(ctx context.Context) error { return o.client.List(ctx, items, client.InNamespace(o.namespace)) }); err != nil {
			rest(ctx, retryPause)
			continue
		}
		o.listed(items, !first)
		version := items.GetResourceVersion()
		for ctx.Err() == nil {
			expired := o.watchFrom(ctx, list(), &version)
			if expired {
				o.tellf("the observer lost the thread of %T at version %s", items, version)
				break
			}
			rest(ctx, retryPause)
		}
	}
}

// watchFrom takes in events after a version and moves it on, until the watch breaks.
// It reports whether the version is too old to go on with.
func (o *observer) watchFrom(ctx context.Context, list client.ObjectList, version *string) (expired bool) {
	w, err := o.client.Watch(ctx, list, &client.ListOptions{Namespace: o.namespace, Raw: &metav1.ListOptions{ResourceVersion: *version}})
	if err != nil {
		return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			err := apierrors.FromObject(event.Object)
			return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		}
		object, ok := event.Object.(client.Object)
		if !ok {
			return true
		}
		*version = object.GetResourceVersion()
		o.take(object, event.Type == watch.Deleted, false)
	}
	return false
}

// listed takes in a list; what is not in it any more has ended unseen.
func (o *observer) listed(list client.ObjectList, gap bool) {
	if _, pods := list.(*corev1.PodList); gap && !pods {
		o.mu.Lock()
		o.lostThread = true
		o.mu.Unlock()
	}
	switch list := list.(type) {
	case *corev1.PodList:
		listedOf(o, list.Items, &o.podNow, gap)
	case *v1alpha1.EvictionRequestList:
		listedOf(o, list.Items, &o.erNow, gap)
	case *lifecyclev1alpha1.EvictionList:
		listedOf(o, list.Items, &o.evictionNow, gap)
	case *lifecyclev1alpha1.EvictionRequestList:
		listedOf(o, list.Items, &o.wishNow, gap)
	case *policyv1.PodDisruptionBudgetList: // One that has ended unseen is of no interest.
		for i := range list.Items {
			o.take(&list.Items[i], false, gap)
		}
	case *v1alpha1.EvictionBudgetList: // The same.
		for i := range list.Items {
			o.take(&list.Items[i], false, gap)
		}
	case *batchv1.JobList: // Each is there for minutes after its end.
		for i := range list.Items {
			o.take(&list.Items[i], false, gap)
		}
	}
}

func (o *observer) take(object client.Object, gone, gap bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	switch object := object.(type) {
	case *corev1.Pod:
		if ofHook(object) {
			return
		}
		if o.podNow.take(object, gone) {
			o.pods = append(o.pods, PodSeen{At: now, Gone: gone, Gap: gap, Pod: object})
		}
	case *batchv1.Job:
		if entry, ok := finishedJob(object); ok {
			o.jobs[object.UID] = entry
		}
	case *policyv1.PodDisruptionBudget:
		o.budgets = append(o.budgets, BudgetSeen{At: now, Gone: gone, Budget: object})
	case *v1alpha1.EvictionBudget:
		o.zoning = append(o.zoning, EvictionBudgetSeen{At: now, Gone: gone, Budget: object})
	case *v1alpha1.EvictionRequest:
		if o.erNow.take(object, gone) {
			o.requests = append(o.requests, RequestSeen{At: now, Gone: gone, Request: object})
		}
	case *lifecyclev1alpha1.Eviction:
		if o.evictionNow.take(object, gone) {
			o.evictions = append(o.evictions, EvictionSeen{At: now, Gone: gone, Eviction: object})
		}
	case *lifecyclev1alpha1.EvictionRequest:
		if o.wishNow.take(object, gone) {
			o.wishes = append(o.wishes, WishSeen{At: now, Gone: gone, Wish: object})
		}
	}
}

// podsNow are the pods there are, as far as is known.
func (o *observer) podsNow() map[types.UID]*corev1.Pod { return nowOf(o, &o.podNow) }

func (o *observer) requestsNow() map[types.UID]*v1alpha1.EvictionRequest { return nowOf(o, &o.erNow) }

func (o *observer) evictionsNow() map[types.UID]*lifecyclev1alpha1.Eviction {
	return nowOf(o, &o.evictionNow)
}

func (o *observer) wishesNow() map[types.UID]*lifecyclev1alpha1.EvictionRequest {
	return nowOf(o, &o.wishNow)
}

// podsOn are the pods of a node that are not being deleted, sorted by name.
func (o *observer) podsOn(node string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range o.podsNow() {
		if pod.Spec.NodeName == node && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return compareNames(a, b) })
	return pods
}

func compareNames(a, b client.Object) int {
	if a.GetName() < b.GetName() {
		return -1
	}
	return 1
}

// requestEvents is a channel of every state of requests from now on.
func (o *observer) requestEvents() <-chan *v1alpha1.EvictionRequest { return eventsOf(o, &o.erNow) }

// podEvents is the same of pods, and evictionEvents of native Evictions.
func (o *observer) podEvents() <-chan *corev1.Pod { return eventsOf(o, &o.podNow) }

func (o *observer) evictionEvents() <-chan *lifecyclev1alpha1.Eviction {
	return eventsOf(o, &o.evictionNow)
}

// seen puts all that was seen into a history.
func (o *observer) seen(h *History) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.Pods, h.Requests, h.Budgets, h.EvictionBudgets = slices.Clone(o.pods), slices.Clone(o.requests), slices.Clone(o.budgets), slices.Clone(o.zoning)
	h.Evictions, h.Wishes, h.LostThread = slices.Clone(o.evictions), slices.Clone(o.wishes), o.lostThread
	h.Ledger = slices.Collect(maps.Values(o.jobs))
}

// callTimeout bounds every call of ours.
const callTimeout = 3 * time.Second

func within(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

// insist calls until there is no error.
func insist(ctx context.Context, what string, call func(context.Context) error) error {
	for {
		err := within(ctx, call)
		if err == nil {
			return nil
		}
		if !rest(ctx, 2*retryPause) {
			return fmt.Errorf("%s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}
