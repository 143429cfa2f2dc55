package hook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// sweepEvery is how often the runs of all hooks are compared with their requests, and
// what is over is removed from the hooks' statuses.
const sweepEvery = time.Minute

// runner runs the interceptors of all hooks, on the leader: one reconciler of the SDK for
// each name.
type runner struct {
	*hookInterceptor
	beat time.Duration

	// ready: the runs of the life before have been counted.
	ready atomic.Bool

	queue controllers.Waker

	mu    sync.Mutex
	named map[types.NamespacedName]reconcile.Reconciler
	// called are the hooks whose reconcilers know a request.
	called map[types.NamespacedName]map[types.NamespacedName]bool
	// answered are the native turns of hooks, by pod, and responders their reconcilers.
	answered   map[types.NamespacedName]map[nativeTurn]bool
	responders map[nativeTurn]reconcile.Reconciler
	// begun are the runs by request and hook, as last recorded.
	begun map[types.NamespacedName]map[types.NamespacedName]v1alpha1.HookRun
	// requests of the runs of a hook.
	requests map[types.NamespacedName][]types.NamespacedName
}

// enqueue wakes a request.
func (r *runner) enqueue(request types.NamespacedName) {
	r.queue.Wake(request, 0)
}

// wrote notes the runs of a hook, as they were written or read, and wakes the requests of
// those that somebody lets try again.
func (r *runner) wrote(hook *v1alpha1.EvacuationHook) {
	for _, run := range r.note(hook) {
		if run.Phase == v1alpha1.HookRefused {
			r.asked.add(run.RequestUID)
		}
		r.enqueue(types.NamespacedName{Namespace: hook.Namespace, Name: run.Request})
	}
}

// note notes the runs of a hook, and returns those that somebody lets try again.
func (r *runner) note(hook *v1alpha1.EvacuationHook) (retried []v1alpha1.HookRun) {
	key := client.ObjectKeyFromObject(hook)
	held := 0
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range hook.Status.Runs {
		if ours, ok := r.begun[types.NamespacedName{Namespace: key.Namespace, Name: run.Request}][key]; ok && isRetry(ours, run) {
			retried = append(retried, run)
		}
	}
	r.forgetRuns(key)
	for _, run := range hook.Status.Runs {
		request := types.NamespacedName{Namespace: key.Namespace, Name: run.Request}
		if r.begun[request] == nil {
			r.begun[request] = map[types.NamespacedName]v1alpha1.HookRun{}
		}
		r.begun[request][key] = run
		r.requests[key] = append(r.requests[key], request)
		if run.Phase == v1alpha1.HookHeld {
			held++
		}
	}
	r.metrics.Held(key.Namespace, key.Name, held)
	return retried
}

func (r *runner) forgetRuns(hook types.NamespacedName) {
	for _, request := range r.requests[hook] {
		if delete(r.begun[request], hook); len(r.begun[request]) == 0 {
			delete(r.begun, request)
		}
	}
	delete(r.requests, hook)
}

// forgetHook forgets a hook that was deleted.
func (r *runner) forgetHook(hook types.NamespacedName) {
	r.mu.Lock()
	r.forgetRuns(hook)
	r.mu.Unlock()
	r.runs.forget(hook)
	r.compiled.forget(hook)
	r.metrics.Held(hook.Namespace, hook.Name, 0)
}

var _ reconcile.Reconciler = &runner{}

// Reconcile handles one request, for all hooks that have or had it.
func (r *runner) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.ready.Load() {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	defer func() { r.metrics.Attempts(r.limiter.count()) }()
	er := &v1alpha1.EvictionRequest{}
	err := r.client.Get(ctx, req.NamespacedName, er, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		er = nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get eviction request %s: %w", req.NamespacedName, err)
	}
	var result reconcile.Result
	var errs []error
	soonest := func(after time.Duration) {
		if after > 0 && (result.RequeueAfter == 0 || after < result.RequeueAfter) {
			result.RequeueAfter = after
		}
	}
	hooks := r.hooksOf(req.NamespacedName, er)
	for _, hook := range hooks {
		sdk, err := r.reconciler(hook)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		one, err := sdk.Reconcile(ctx, req)
		errs = append(errs, err)
		soonest(one.RequeueAfter)
	}
	if er != nil {
		r.giveUp(er, hooks)
	}
	evictions, err := r.evictionsOf(ctx, req.NamespacedName)
	if err != nil {
		return result, errors.Join(append(errs, err)...)
	}
	after, err := r.respond(ctx, req, evictions)
	errs = append(errs, err)
	soonest(after)
	after, err = r.settle(ctx, req.NamespacedName, er, evictions)
	soonest(after)
	if er == nil {
		r.mu.Lock()
		delete(r.called, req.NamespacedName)
		r.mu.Unlock()
	}
	return result, errors.Join(append(errs, err)...)
}

// hooksOf are the hooks whose turn a request is or was.
func (r *runner) hooksOf(request types.NamespacedName, er *v1alpha1.EvictionRequest) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	if er != nil {
		for _, name := range slices.Concat(er.Status.ActiveInterceptors, er.Status.ProcessedInterceptors) {
			hook, ok := v1alpha1.HookOf(name)
			if !ok {
				continue
			}
			if r.called[request] == nil {
				r.called[request] = map[types.NamespacedName]bool{}
			}
			r.called[request][hook] = true
		}
	}
	return slices.SortedFunc(maps.Keys(r.called[request]), compareKeys)
}

func (r *runner) reconciler(hook types.NamespacedName) (reconcile.Reconciler, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.named[hook] == nil {
		made, err := interceptor.NewReconciler(r.client, r.live, &named{hookInterceptor: r.hookInterceptor, hook: hook}, interceptor.Options{
			Name: v1alpha1.HookInterceptor(hook), Clock: r.clock, Recorder: r.recorder, HeartbeatInterval: r.beat,
		})
		if err != nil {
			return nil, fmt.Errorf("run hook %s: %w", hook, err)
		}
		r.named[hook] = made
	}
	return r.named[hook], nil
}

// settle ends the runs of a request that has ended itself. The SDK does so only for the
// turn that was interrupted: not for a hook that was done before the eviction was called
// off, and not for a request that was deleted while no process ran.
func (r *runner) settle(ctx context.Context, request types.NamespacedName, er *v1alpha1.EvictionRequest, evictions []*lifecyclev1alpha1.Eviction) (time.Duration, error) {
	r.mu.Lock()
	runs := maps.Clone(r.begun[request])
	r.mu.Unlock()
	var errs []error
	var after time.Duration
	for _, hook := range slices.SortedFunc(maps.Keys(runs), compareKeys) {
		n, run := &named{hookInterceptor: r.hookInterceptor, hook: hook}, runs[hook]
		if run.Eviction != "" {
			again, err := r.settleNative(ctx, n, request, run, evictions)
			after = max(after, again)
			errs = append(errs, err)
			continue
		}
		current := er
		if er == nil || string(er.UID) != run.RequestUID {
			gone, err := r.isGone(ctx, request, run)
			if err != nil || !gone {
				errs = append(errs, err)
				continue
			}
			current = nil
		}
		switch {
		case current == nil || meta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.ConditionCanceled):
			err := n.callOff(ctx, targetOf(request, current, run), false)
			switch {
			case errors.Is(err, interceptor.ErrNotYet):
				after = soon
			case errors.Is(err, interceptor.ErrPointOfNoReturn):
				if current == nil { // Nobody is left who would finish it.
					r.runs.drop(hook, types.UID(run.RequestUID))
				}
			case err != nil:
				errs = append(errs, fmt.Errorf("cancel hook %s: %w", hook, err))
			}
		case isSkipped(current, hook) && !r.runs.isOver(hook, current.UID):
			err := n.callOff(ctx, targetOf(request, current, run), true)
			switch {
			case errors.Is(err, interceptor.ErrNotYet):
				after = soon
			case err != nil:
				errs = append(errs, fmt.Errorf("stop hook %s: %w", hook, err))
			}
		case v1alpha1.IsFinished(current):
			r.runs.drop(hook, types.UID(run.RequestUID))
		}
	}
	return after, errors.Join(errs...)
}

// isSkipped reports whether somebody has ended the turn of a hook. The SDK takes that for
// its completion and calls nothing.
func isSkipped(er *v1alpha1.EvictionRequest, hook types.NamespacedName) bool {
	return v1alpha1.ReportOf(er, v1alpha1.HookInterceptor(hook)).SkippedBy != ""
}

// giveUp ends the wait of a request for the limiter whose hook was skipped, unless another hook
// has the turn.
func (r *runner) giveUp(er *v1alpha1.EvictionRequest, hooks []types.NamespacedName) {
	skipped := slices.ContainsFunc(hooks, func(hook types.NamespacedName) bool { return isSkipped(er, hook) })
	another := slices.ContainsFunc(er.Status.ActiveInterceptors, func(name string) bool {
		hook, ok := v1alpha1.HookOf(name)
		return ok && !isSkipped(er, hook)
	})
	if skipped && !another {
		r.limiter.stopWaiting(er.UID)
	}
}

// isGone asks the API server: the cache may lag behind.
func (r *runner) isGone(ctx context.Context, request types.NamespacedName, run v1alpha1.HookRun) (bool, error) {
	er := &v1alpha1.EvictionRequest{}
	switch err := r.live.Get(ctx, request, er); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get eviction request %s: %w", request, err)
	}
	return string(er.UID) != run.RequestUID, nil
}

// targetOf is what is left to know of a target.
func targetOf(request types.NamespacedName, er *v1alpha1.EvictionRequest, run v1alpha1.HookRun) interceptor.Target {
	t := interceptor.Target{
		Request: request, RequestUID: types.UID(run.RequestUID),
		Pod: types.NamespacedName{Namespace: request.Namespace, Name: run.Pod}, PodUID: types.UID(run.Request),
	}
	if run.Eviction != "" {
		t.Native, t.Request.Name = true, run.Eviction
	}
	if er != nil {
		t.NodeName, t.Labels = er.Status.NodeName, maps.Clone(er.Labels)
	}
	return t
}

func compareKeys(a, b types.NamespacedName) int {
	switch {
	case a.String() < b.String():
		return -1
	case a.String() > b.String():
		return 1
	}
	return 0
}

// sweep counts, when the leader starts, what ran in the life before, and lets everything
// begin; then it looks now and then for runs whose requests have ended.
func (r *runner) sweep(ctx context.Context) error {
	for {
		pause := sweepEvery
		if err := r.sweepOnce(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // We are to stop.
			}
			log.FromContext(ctx).Info("Looking at all hooks failed; it is tried again", "reason", err.Error())
			pause = soon
		}
		timer := r.clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

func (r *runner) sweepOnce(ctx context.Context) error {
	var list v1alpha1.EvacuationHookList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EvacuationHooks: %w", err)
	}
	first := !r.ready.Load()
	var errs []error
	for i := range list.Items {
		hook := &list.Items[i]
		if len(hook.Status.Runs) == 0 {
			continue
		}
		if r.isRetried(hook) { // Should its event have been missed.
			r.runs.reread(client.ObjectKeyFromObject(hook))
		}
		if !first {
			errs = append(errs, client.IgnoreNotFound(r.runs.flush(ctx, hook)))
		}
		runs, err := r.runs.all(ctx, hook)
		if err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		for _, run := range runs {
			if first && (run.Phase == v1alpha1.HookRunning || run.Phase == v1alpha1.HookUndoing) {
				r.limiter.hold(types.UID(run.RequestUID), hook.Namespace)
			}
		}
		seen := hook.DeepCopy()
		seen.Status.Runs = runs
		r.wrote(seen)
		for _, run := range runs {
			r.enqueue(types.NamespacedName{Namespace: hook.Namespace, Name: run.Request})
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		r.ready.Store(true)
	}
	return err
}
