// Package descheduler sets the annotations by which the descheduler tells running
// evictions from failed ones.
package descheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

const (
	// pause is when to retry while the caches are not in sync.
	pause = time.Second
	// cacheDelay lets the cache catch up with what we have just written: a pod changes
	// several times while it starts, and an event may be older than our patch.
	cacheDelay = 200 * time.Millisecond
	// fieldOwner of the annotations.
	fieldOwner = "descheduler." + v1alpha1.GroupName
)

// Reconciler is the controller of the handshake with the descheduler: it sets and
// removes the annotations by which a descheduler that evicts in the background tells
// running evictions from failed ones. See step for when.
//
// Its keys are pods. A pod without interceptors and without a request costs no API
// call. An event of any pod costs a cache lookup.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Clock also drives the queue, which SetupWithManager makes.
	Clock clock.WithTicker
	// MarkInProgress marks pods whose eviction is in progress.
	MarkInProgress bool
	// Except selects pods whose platform marks them by itself, and stumbles over marks
	// of others. It is nil without --descheduler-except: then there are none.
	Except labels.Selector
	// MarkEvictOnly marks pods whose eviction would be intercepted. Resolver, OnChange
	// and Synced are asked only for this.
	MarkEvictOnly bool
	// Resolver says who intercepts the eviction of a pod.
	Resolver registration.Resolver
	// OnChange takes a function that is to be called, from any goroutine, when the
	// resolver may answer differently for a pod that has not changed.
	OnChange func(func())
	// Synced reports whether the resolver is in sync.
	Synced func() bool

	marked marks
}

var _ reconcile.Reconciler = &Reconciler{}

// marks are the pods whose eviction we have marked as in progress, and their UIDs.
type marks struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]types.UID
}

// add remembers that the pod was marked.
func (m *marks) add(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods == nil {
		m.pods = map[types.NamespacedName]types.UID{}
	}
	m.pods[client.ObjectKeyFromObject(pod)] = pod.UID
}

// has reports whether this pod was marked.
func (m *marks) has(pod *corev1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[client.ObjectKeyFromObject(pod)] == pod.UID
}

// forget drops a pod whose eviction is over.
func (m *marks) forget(pod types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, pod)
}

// Reconcile gathers, decides and applies for one pod.
func (d *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if d.MarkEvictOnly && !d.Synced() {
		// A resolver that does not know all registrations would return none.
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	// If the patch does not apply, the pod is newer than the cache.
	for _, reader := range []client.Reader{d.Client, d.APIReader} {
		pod := &corev1.Pod{}
		if err := reader.Get(ctx, req.NamespacedName, pod); apierrors.IsNotFound(err) {
			d.marked.forget(req.NamespacedName)
			return reconcile.Result{}, nil
		} else if err != nil {
			return reconcile.Result{}, fmt.Errorf("get pod: %w", err)
		}
		hints, err := d.decide(ctx, pod)
		if err != nil || len(hints) == 0 {
			return reconcile.Result{}, err
		}
		patch, err := patchOf(pod, hints)
		if err != nil {
			return reconcile.Result{}, err
		}
		err = d.Client.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldOwner))
		switch {
		case err == nil:
			log.FromContext(ctx).V(1).Info("Told the descheduler", "hints", hints)
			if slices.Contains(hints, hint{evictionInProgress, true}) {
				d.marked.add(pod)
			}
			return reconcile.Result{}, nil
		case apierrors.IsNotFound(err):
			return reconcile.Result{}, nil
		case !refused.Changed(err):
			return reconcile.Result{}, fmt.Errorf("annotate pod for the descheduler: %w", err)
		}
	}
	return reconcile.Result{}, fmt.Errorf("annotate pod %s for the descheduler: it kept changing", req.NamespacedName)
}

// decide gathers what is known of the pod from memory, and decides.
func (d *Reconciler) decide(ctx context.Context, pod *corev1.Pod) ([]hint, error) {
	var intercepted bool
	if d.MarkEvictOnly && !pods.StaysOnNode(pod) { // Their evictions are not delayed, no matter who names them.
		// A missing registration changes the registry later, which enqueues the pod
		// again.
		names, _ := d.Resolver.Resolve(pod)
		intercepted = len(names) > 0
	}
	in := input{
		MarkInProgress: d.MarkInProgress && (d.Except == nil || !d.Except.Matches(labels.Set(pod.Labels))),
		MarkEvictOnly:  d.MarkEvictOnly,
		Annotations:    pod.Annotations,
		Deleting:       pod.DeletionTimestamp != nil,
		Terminal:       pods.HasEnded(pod),
		Intercepted:    intercepted,
	}
	er := &v1alpha1.EvictionRequest{}
	err := d.Client.Get(ctx, v1alpha1.RequestKey(pod), er)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get EvictionRequest: %w", err)
	}
	if err == nil && controllers.RunsFor(er, pod) {
		in.Running, in.Lasting, in.Marked = true, controllers.Lasting(er), d.marked.has(pod)
	} else {
		d.marked.forget(client.ObjectKeyFromObject(pod))
	}
	return step(in), nil
}
