package hook

import (
	"context"
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/execcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

// Names of the controllers and of their queues.
const (
	runnerName = "evacuation-hooks"
	statusName = "evacuation-hook-status"
)

// runTimeout limits the reconciliation of one request, statusTimeout that of one status.
// The SDK limits each call of an interceptor within it.
const (
	runTimeout    = 2 * time.Minute
	statusTimeout = time.Minute
)

// Options say how the hooks run. All but Recorder, Exec, HeartbeatInterval and Workers
// are required.
type Options struct {
	Clock   clock.WithTicker
	Metrics *metrics.Hooks
	Bounds  Bounds
	// MaxConcurrent is how many attempts run at a time in the cluster, and
	// MaxPerNamespace in a namespace.
	MaxConcurrent, MaxPerNamespace int
	// Exec runs commands; nil if Bounds do not allow it.
	Exec *execcall.Executor
	// HTTP sends requests, and Watches follows the workloads of waits.
	HTTP    *httpcall.Client
	Watches *waitfor.Watches
	// Coverage says what the selectors and conditions of a hook cover, and whether that
	// is known. OnCoverage calls the function when it changes.
	Coverage func(hook types.NamespacedName) (Coverage, bool)
	// It is called once, before the manager starts.
	OnCoverage func(func(hook types.NamespacedName))
	// Native are the Evictions of lifecycle.k8s.io, for hooks with a spec.nativeKey. Nil: none.
	Native NativeEvictions
	// Recorder records the events. Default: the manager's.
	Recorder eventsclient.EventRecorder
	// HeartbeatInterval is the SDK's default if zero.
	HeartbeatInterval time.Duration
	// Workers is how many requests are handled at a time. Default 10.
	Workers int
}

// Kinds are what must be in the manager's cache.
func Kinds() []client.Object { return []client.Object{&v1alpha1.EvacuationHook{}, &batchv1.Job{}} }

// CacheOptions keep only the Jobs of hooks.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&batchv1.Job{}: {Label: ofHooks, Transform: cache.TransformStripManagedFields()},
	}
}

// ofHooks selects what a hook has made.
var ofHooks = func() labels.Selector {
	exists, err := labels.NewRequirement(v1alpha1.HookLabel, selection.Exists, nil)
	utilruntime.Must(err) // It is a constant.
	return labels.NewSelector().Add(*exists)
}()

// Add adds the interceptors of all EvacuationHooks to a manager. They run on the leader.
func Add(mgr ctrl.Manager, o Options) error {
	if err := controllers.Require("interceptors of EvacuationHooks", map[string]bool{
		"Clock": o.Clock != nil, "Metrics": o.Metrics != nil, "HTTP": o.HTTP != nil, "Watches": o.Watches != nil,
		"Coverage": o.Coverage != nil, "OnCoverage": o.OnCoverage != nil,
		"MaxConcurrent": o.MaxConcurrent > 0, "MaxPerNamespace": o.MaxPerNamespace > 0, "Bounds.MaxTotal": o.Bounds.MaxTotal > 0,
		"Exec": o.Exec != nil || !o.Bounds.Exec,
	}); err != nil {
		return err
	}
	if o.Recorder == nil {
		o.Recorder = mgr.GetEventRecorder(fieldOwner)
	}
	if o.Workers <= 0 {
		o.Workers = 10
	}
	r := newRunner(mgr.GetClient(), mgr.GetAPIReader(), o)
	status := &reporter{hookInterceptor: r.hookInterceptor, coverage: o.Coverage, gone: r.forgetHook}
	o.OnCoverage(status.covers)
	return errors.Join(
		setupRunner(mgr, r, o),
		setupStatus(mgr, status, o),
		mgr.Add(manager.RunnableFunc(r.inflight.run)),
		mgr.Add(manager.RunnableFunc(o.Watches.Run)),
		mgr.Add(manager.RunnableFunc(r.sweep)),
		r.followPods(mgr.GetCache()),
	)
}

func newRunner(c client.Client, live client.Reader, o Options) *runner {
	r := &runner{
		beat: o.HeartbeatInterval, named: map[types.NamespacedName]reconcile.Reconciler{},
		called:   map[types.NamespacedName]map[types.NamespacedName]bool{},
		begun:    map[types.NamespacedName]map[types.NamespacedName]v1alpha1.HookRun{},
		requests: map[types.NamespacedName][]types.NamespacedName{},
		answered: map[types.NamespacedName]map[nativeTurn]bool{}, responders: map[nativeTurn]reconcile.Reconciler{},
	}
	r.hookInterceptor = &hookInterceptor{
		client: c, live: live, native: o.Native, clock: o.Clock, recorder: o.Recorder, metrics: o.Metrics,
		compiled: &compiledHooks{bounds: o.Bounds}, exec: o.Exec, http: o.HTTP, watches: o.Watches, wake: r.enqueue,
		runs:     newRecordedRuns(c, live, r.wrote),
		limiter:  newLimiter(o.Clock, o.MaxConcurrent, o.MaxPerNamespace, r.enqueue),
		inflight: &inflight{clock: o.Clock, wake: r.enqueue},
	}
	return r
}

func setupRunner(mgr ctrl.Manager, r *runner, o Options) error {
	ofJob := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		for _, owner := range object.GetOwnerReferences() {
			if owner.Kind == "EvictionRequest" {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
			}
		}
		// The Job of an undo, whose request may be gone.
		return r.requestsOf(object.GetNamespace(), object.GetLabels()[v1alpha1.HookRequestLabel])
	})
	ofHook := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		hook, ok := object.(*v1alpha1.EvacuationHook)
		if !ok {
			return nil
		}
		if r.isRetried(hook) {
			r.runs.reread(client.ObjectKeyFromObject(hook))
		}
		var requests []reconcile.Request
		for _, run := range hook.Status.Runs {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: hook.Namespace, Name: run.Request}})
		}
		return requests
	})
	retried := predicate.NewPredicateFuncs(func(object client.Object) bool {
		hook, ok := object.(*v1alpha1.EvacuationHook)
		return ok && r.isRetried(hook)
	})
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvictionRequest{}, builder.WithPredicates(interceptor.TurnChanged(), predicate.NewPredicateFuncs(involvesHook))).
		Watches(&batchv1.Job{}, ofJob).
		Watches(&v1alpha1.EvacuationHook{}, ofHook, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, retried))).
		WatchesRawSource(source.Func(func(ctx context.Context, queue controllers.Queue) error {
			err := r.queue.Start(ctx, queue)
			if o.Native != nil && err == nil {
				o.Native.Notify(r.enqueue) // From now on, when this is the leader.
			}
			return err
		}))
	return controllers.Complete(b, runnerName, r, controllers.Options{Clock: o.Clock, Timeout: runTimeout, Workers: o.Workers, Limiter: controllers.SlowBackoff()})
}

// involvesHook reports whether a request has a hook among its interceptors.
func involvesHook(object client.Object) bool {
	er, ok := object.(*v1alpha1.EvictionRequest)
	return ok && slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool {
		_, ok := v1alpha1.HookOf(i.Name)
		return ok
	})
}

// requestsOf are the requests with a UID that have a run.
func (r *runner) requestsOf(namespace, uid string) (requests []reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for request, hooks := range r.begun {
		for _, run := range hooks {
			if request.Namespace == namespace && run.RequestUID == uid {
				return []reconcile.Request{{NamespacedName: request}}
			}
		}
	}
	return nil
}

// followPods wakes the requests of pods whose hook waits for a condition.
func (r *runner) followPods(cached cache.Informers) error {
	_, err := informers.Follow(context.Background(), cached, &corev1.Pod{}, toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, object any) {
		if pod, ok := object.(*corev1.Pod); ok && r.follows.has(string(pod.UID)) {
			r.enqueue(v1alpha1.RequestKey(pod))
		}
	}})
	return err
}

func setupStatus(mgr ctrl.Manager, r *reporter, o Options) error {
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvacuationHook{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.queue.Start))
	return controllers.Complete(b, statusName, r, controllers.Options{Clock: o.Clock, Timeout: statusTimeout, Limiter: controllers.SlowBackoff()})
}
