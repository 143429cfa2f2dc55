package budget

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/scale"
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
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

// Names of the controllers and of their queues.
const (
	turnsName  = "eviction-budget-turns"
	decideName = "eviction-budgets"
)

// timeout limits one reconciliation. The SDK limits each call of the interceptor within it.
const timeout = 2 * time.Minute

// Options say how budgets are enforced. All but Recorder, Scales and Workers are required.
type Options struct {
	Clock   clock.WithTicker
	Metrics *metrics.Budgets
	// Watches follows what conditions read.
	Watches *waitfor.Watches
	// Scales reads the scales of owners that are no StatefulSets, Deployments, ReplicaSets
	// or ReplicationControllers. Without it nothing is known of those.
	Scales scale.ScalesGetter
	// Recorder records the events. Default: the manager's.
	Recorder eventsclient.EventRecorder
	// Deletes: the manager may delete pods that a PodDisruptionBudget can never let go, where
	// their EvictionBudgets say so.
	Deletes bool
	// Workers is how many requests are handled at a time, and how many namespaces are
	// decided about. Default 4.
	Workers int
}

// Add adds the interceptor of all EvictionBudgets to a manager. It decides on the leader;
// every replica follows the pods, so that the next one need not begin with that. What it
// returns answers the evictor.
func Add(mgr ctrl.Manager, o Options) (*Exhausted, error) {
	if err := controllers.Require("interceptor of EvictionBudgets", map[string]bool{
		"Clock": o.Clock != nil, "Metrics": o.Metrics != nil, "Watches": o.Watches != nil,
	}); err != nil {
		return nil, err
	}
	if o.Recorder == nil {
		o.Recorder = mgr.GetEventRecorder(fieldOwner)
	}
	if o.Workers <= 0 {
		o.Workers = 4
	}
	r := newRunner(mgr.GetClient(), mgr.GetAPIReader(), o)
	if o.Scales != nil {
		r.scales = &scales{client: o.Scales, mapper: mgr.GetRESTMapper(), clock: o.Clock}
	}
	return &Exhausted{r}, errors.Join(
		r.feed(mgr.GetCache()),
		r.setupDecisions(mgr, o),
		r.setupTurns(mgr, o),
		mgr.Add(manager.RunnableFunc(o.Watches.Run)),
	)
}

func newRunner(c client.Client, live client.Reader, o Options) *runner {
	r := &runner{client: c, live: live, clock: o.Clock, recorder: o.Recorder, metrics: o.Metrics, watches: o.Watches, deletes: o.Deletes}
	r.state = newState(c, r.changed, r.wake)
	return r
}

// feed fills the state from the informers of all that matters.
func (r *runner) feed(cached cache.Informers) error {
	now := func() time.Time { return r.clock.Now() }
	budgets := handlers(func(b *v1alpha1.EvictionBudget) { r.state.putBudget(b) }, func(b *v1alpha1.EvictionBudget) { r.state.removeBudget(client.ObjectKeyFromObject(b)) })
	pods := handlers(func(p *corev1.Pod) { r.state.putPod(p, now()) }, func(p *corev1.Pod) { r.state.removePod(p, now()) })
	requests := handlers(r.state.putRequest, func(er *v1alpha1.EvictionRequest) { r.state.removeRequest(er.Namespace, er.UID, podOf(er)) })
	nodes := toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		was, ok := before.(*corev1.Node)
		is, ok2 := after.(*corev1.Node)
		if ok && ok2 && !maps.Equal(was.Labels, is.Labels) {
			r.state.putNode()
		}
	}}
	var synced []toolscache.InformerSynced
	for _, feed := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&v1alpha1.EvictionBudget{}, budgets}, {&corev1.Pod{}, pods}, {&v1alpha1.EvictionRequest{}, requests}, {&corev1.Node{}, nodes},
	} {
		has, err := informers.Follow(context.Background(), cached, feed.object, feed.handler)
		if err != nil {
			return fmt.Errorf("informers of EvictionBudgets: %w", err)
		}
		synced = append(synced, has)
	}
	r.synced = func() bool {
		for _, has := range synced {
			if !has() {
				return false
			}
		}
		return true
	}
	return nil
}

// handlers of an informer of one kind. What was replaced unseen is removed.
func handlers[T client.Object](put, remove func(T)) toolscache.ResourceEventHandlerFuncs {
	h := informers.Handlers(put, remove)
	h.UpdateFunc = func(before, after any) {
		was, ok := before.(T)
		one, ok2 := after.(T)
		if !ok || !ok2 {
			return
		}
		if was.GetUID() != one.GetUID() {
			remove(was)
		}
		put(one)
	}
	return h
}

// setupDecisions adds the controller that decides, when something has changed that it
// depends on.
func (r *runner) setupDecisions(mgr ctrl.Manager, o Options) error {
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return r.state.budgetsOf(object.GetNamespace())
	})
	scaled := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvictionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&appsv1.StatefulSet{}, ofNamespace, scaled).
		Watches(&appsv1.Deployment{}, ofNamespace, scaled).
		Watches(&appsv1.ReplicaSet{}, ofNamespace, scaled).
		Watches(&corev1.ReplicationController{}, ofNamespace, scaled).
		WatchesRawSource(source.Func(r.budgets.Start))
	return controllers.Complete(b, decideName, r, controllers.Options{Clock: o.Clock, Timeout: timeout, Workers: o.Workers, Limiter: controllers.SlowBackoff()})
}

// setupTurns adds the interceptor.
func (r *runner) setupTurns(mgr ctrl.Manager, o Options) error {
	sdk, err := interceptor.NewReconciler(mgr.GetClient(), mgr.GetAPIReader(), &turns{r}, interceptor.Options{
		Name: v1alpha1.BudgetInterceptor, Clock: o.Clock, Recorder: o.Recorder,
	})
	if err != nil {
		return fmt.Errorf("set up %s: %w", turnsName, err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvictionRequest{}, builder.WithPredicates(interceptor.TurnChanged(), predicate.NewPredicateFuncs(planned))).
		WatchesRawSource(source.Func(r.requests.Start))
	return controllers.Complete(b, turnsName, sdk, controllers.Options{Clock: o.Clock, Timeout: timeout, Workers: o.Workers, Limiter: controllers.SlowBackoff()})
}

// planned reports whether the budgets are among the interceptors of a request.
func planned(object client.Object) bool {
	er, ok := object.(*v1alpha1.EvictionRequest)
	return ok && slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name == v1alpha1.BudgetInterceptor })
}
