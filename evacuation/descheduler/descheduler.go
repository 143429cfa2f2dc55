// Package descheduler sets the annotations by which the descheduler tells an eviction
// that goes on from one that failed.
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
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

const (
	// pause is when to look again while the caches are not in sync.
	pause = time.Second
	// cacheDelay lets the cache catch up with what we have just written: a pod changes
	// several times while it starts, and an event may be older than our patch.
	cacheDelay = 200 * time.Millisecond
)

// Reconciler is the controller of the descheduler's hand-shake: it puts the
// annotations on pods by which a descheduler that evicts in the background tells an
// eviction that goes on from one that failed, and takes them away. See step
// for when.
//
// Its keys are pods. A pod without interceptors and without a request costs no API
// call, and an event of any pod a look into the cache.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Clock also drives the queue, which SetupWithManager makes.
	Clock clock.WithTicker
	// MarkInProgress marks pods whose eviction goes on.
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
	// Synced reports whether the resolver knows all it answers from.
	Synced func() bool

	told marked
}

var _ reconcile.Reconciler = &Reconciler{}

// told are the pods whose eviction we have marked as going on, and their UIDs.
type marked struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]types.UID
}

// add remembers that the pod was marked.
func (t *marked) add(pod *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods = map[types.NamespacedName]types.UID{}
	}
	t.pods[client.ObjectKeyFromObject(pod)] = pod.UID
}

// has reports whether this very pod was marked.
func (t *marked) has(pod *corev1.Pod) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pods[client.ObjectKeyFromObject(pod)] == pod.UID
}

// forget is for pods whose eviction is over.
func (t *marked) forget(pod types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, pod)
}

// Reconcile gathers, decides and applies for one pod.
func (d *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if d.MarkEvictOnly && !d.Synced() {
		// A resolver that has not heard of all registrations would say "nobody".
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	// When the patch does not fit, the pod is newer than what the cache shows.
	for _, reader := range []client.Reader{d.Client, d.APIReader} {
		pod := &corev1.Pod{}
		if err := reader.Get(ctx, req.NamespacedName, pod); apierrors.IsNotFound(err) {
			d.told.forget(req.NamespacedName)
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
		err = d.Client.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch))
		switch {
		case err == nil:
			log.FromContext(ctx).V(1).Info("Told the descheduler", "hints", hints)
			if slices.Contains(hints, hint{evictionInProgress, true}) {
				d.told.add(pod)
			}
			return reconcile.Result{}, nil
		case apierrors.IsNotFound(err):
			return reconcile.Result{}, nil
		case !apierrors.IsConflict(err) && !apierrors.IsInvalid(err):
			return reconcile.Result{}, fmt.Errorf("annotate pod for the descheduler: %w", err)
		}
	}
	return reconcile.Result{}, fmt.Errorf("annotate pod %s for the descheduler: it kept changing", req.NamespacedName)
}

// decide gathers what is known of the pod from memory, and decides.
func (d *Reconciler) decide(ctx context.Context, pod *corev1.Pod) ([]hint, error) {
	var intercepted bool
	if d.MarkEvictOnly && !pods.StaysOnNode(pod) { // Evictions of those are not held up, whoever names them.
		// Who is missing for now changes the registry, and that brings the pod back.
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
	if err == nil && runsFor(er, pod) {
		in.Running, in.Lasting, in.Told = true, lasting(er), d.told.has(pod)
	} else {
		d.told.forget(client.ObjectKeyFromObject(pod))
	}
	return step(in), nil
}
