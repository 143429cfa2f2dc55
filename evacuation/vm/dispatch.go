package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// dispatcher runs the interceptors of all policies. Their names change with the
// policies, so it runs one reconciler of the SDK per name itself.
type dispatcher struct {
	store    *Store
	client   client.Client
	live     client.Reader
	clock    clock.WithTicker
	recorder func(name string) eventsclient.EventRecorder
	metrics  *metrics.VM
	callers  Callers
	beat     time.Duration

	mu    sync.Mutex
	named map[string]reconcile.Reconciler
	queue controllers.Waker
}

// wake enqueues a request.
func (d *dispatcher) wake(request types.NamespacedName) {
	d.queue.Wake(request, 0)
}

// wakeAll enqueues every request: another policy may apply.
func (d *dispatcher) wakeAll(ctx context.Context) error {
	var list v1alpha1.EvictionRequestList
	if err := d.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list eviction requests: %w", err)
	}
	for i := range list.Items {
		d.wake(client.ObjectKeyFromObject(&list.Items[i]))
	}
	return nil
}

var _ reconcile.Reconciler = &dispatcher{}

// Reconcile hands one request to the interceptors whose names it has.
func (d *dispatcher) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	er := &v1alpha1.EvictionRequest{}
	err := d.client.Get(ctx, req.NamespacedName, er, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get eviction request %s: %w", req.NamespacedName, err)
	}
	if !d.store.Loaded() {
		return reconcile.Result{RequeueAfter: time.Second}, nil // It is created with the caches.
	}
	gone := apierrors.IsNotFound(err)
	if gone {
		d.store.ends.forget(req.NamespacedName)
	}
	names := d.store.names()
	reconcilers, err := d.reconcilers(names)
	if err != nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(reconcilers)) {
		if !gone && !concerns(er, name) {
			continue
		}
		one, err := reconcilers[name].Reconcile(ctx, req)
		errs = append(errs, err)
		if one.RequeueAfter > 0 && (result.RequeueAfter == 0 || one.RequeueAfter < result.RequeueAfter) {
			result.RequeueAfter = one.RequeueAfter
		}
	}
	return result, errors.Join(errs...)
}

// reconcilers returns the reconcilers of the names, created when first needed. That of
// a name that no policy has any more is not called: someone else may act under it.
func (d *dispatcher) reconcilers(names []string) (map[string]reconcile.Reconciler, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[string]reconcile.Reconciler{}
	for _, name := range names {
		if d.named[name] == nil {
			recorder := d.recorder(name)
			impl := &policyInterceptor{Store: d.store, name: name, recorder: recorder, metrics: d.metrics, callers: d.callers}
			made, err := interceptor.NewReconciler(d.client, d.live, impl, interceptor.Options{
				Name: name, Clock: d.clock, Recorder: recorder, HeartbeatInterval: d.beat,
			})
			if err != nil {
				return nil, fmt.Errorf("run interceptor %s: %w", name, err)
			}
			if d.named == nil {
				d.named = map[string]reconcile.Reconciler{}
			}
			d.named[name] = made
		}
		found[name] = d.named[name]
	}
	return found, nil
}

// names are the interceptors of all policies.
func (s *Store) names() []string {
	names := map[string]bool{}
	for _, p := range s.all() {
		names[p.interceptor] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// concerns reports whether a request is or was the turn of that interceptor.
func concerns(er *v1alpha1.EvictionRequest, name string) bool {
	return slices.Contains(er.Status.ActiveInterceptors, name) || slices.Contains(er.Status.ProcessedInterceptors, name)
}
