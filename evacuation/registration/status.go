package registration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	registrationsController = "evictioninterceptors"
	statusManager           = "drawbridge-registrations"
	// statusInterval is the minimum time between two writes of one status because of
	// its pods, which change all the time.
	statusInterval = 10 * time.Second
	// statusRetry is a fallback: after a conflict the watch event normally comes first.
	statusRetry   = time.Second
	statusTimeout = 30 * time.Second
)

// StatusReconciler writes the status of EvictionInterceptors. It runs on the
// leader. All fields are required. It counts the pods of EvacuationHooks, too (Report,
// OnHook), but their status is another controller's.
type StatusReconciler struct {
	// Client reads EvictionInterceptors from the cache and writes.
	Client client.Client
	// Cache has the informer of the pods to count.
	Cache cache.Informers
	// Registry is this replica's.
	Registry *Registry
	// Clock tells the time, and drives the queue.
	Clock clock.WithTicker

	onHook  func(hook types.NamespacedName) // Nil without OnHook.
	mu      sync.Mutex                      // Guards all below.
	members *members                        // Nil before the controller starts.
	// written is when a status was last written. It is only a hint.
	written map[string]time.Time
}

var _ reconcile.Reconciler = &StatusReconciler{}

// SetupWithManager adds the controller to the manager.
func (r *StatusReconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := controllers.Require("controller "+registrationsController, map[string]bool{
		"Client": r.Client != nil, "Cache": r.Cache != nil, "Registry": r.Registry != nil, "Clock": r.Clock != nil,
	})
	if err != nil {
		return err
	}
	r.written = map[string]time.Time{}
	b := ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.EvictionInterceptor{}).WatchesRawSource(source.Func(r.count))
	return controllers.Complete(b, registrationsController, r, controllers.Options{Clock: r.Clock, Timeout: statusTimeout})
}

// count starts counting pods, and enqueues every EvictionInterceptor whose count has
// changed. Those who want to know of hooks are told.
func (r *StatusReconciler) count(ctx context.Context, queue controllers.Queue) error {
	members := newMembers(r.Registry, r.notify(queue.Add))
	r.mu.Lock()
	r.members = members
	r.mu.Unlock()
	return members.start(ctx, r.Cache)
}

// notify returns what is called with the key of a registration whose count has changed.
func (r *StatusReconciler) notify(enqueue func(reconcile.Request)) func(key string) {
	return func(key string) {
		hook, ok := hookOf(key)
		switch {
		case !ok:
			enqueue(reconcile.Request{NamespacedName: types.NamespacedName{Name: key}})
		case r.onHook != nil:
			r.onHook(hook)
		}
	}
}

func (r *StatusReconciler) counter() *members {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members
}

// Reconcile writes the status of one registration if it has changed.
func (r *StatusReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	from := &v1alpha1.EvictionInterceptor{}
	if err := r.Client.Get(ctx, req.NamespacedName, from); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get EvictionInterceptor: %w", err)
	}
	now := r.Clock.Now()
	// Another generation is written immediately.
	if from.Status.ObservedGeneration == from.Generation {
		if wait := r.wrote(req.Name).Add(statusInterval).Sub(now); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	found, counted := r.counter().report(req.Name)
	if !counted || found.entry.uid != from.UID || found.entry.generation != from.Generation {
		return ctrl.Result{}, nil // Enqueued again when they are counted.
	}
	after := from.DeepCopy()
	describe(after, found, now)
	if apiequality.Semantic.DeepEqual(from.Status, after.Status) {
		return ctrl.Result{}, nil
	}
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, after, patch, client.FieldOwner(statusManager)); err != nil {
		switch {
		case apierrors.IsConflict(err):
			return ctrl.Result{RequeueAfter: statusRetry}, nil
		case apierrors.IsNotFound(err):
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("patch status of EvictionInterceptor: %w", err)
	}
	r.mu.Lock()
	r.written[req.Name] = now
	r.mu.Unlock()
	return ctrl.Result{}, nil
}

func (r *StatusReconciler) wrote(name string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written[name]
}

func (r *StatusReconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, name)
}

// describe sets the status to the findings.
func describe(to *v1alpha1.EvictionInterceptor, found report, now time.Time) {
	to.Status.ObservedGeneration = to.Generation
	to.Status.MatchingPods = new(int32(min(found.matching, 1<<31-1))) //nolint:gosec // It is limited in the same expression.
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&to.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: to.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if refused := found.entry.refused; refused != nil {
		set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, refused.reason, refused.message)
		meta.RemoveStatusCondition(&to.Status.Conditions, v1alpha1.ConditionEvaluated)
		return
	}
	set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "The selectors and expressions are well formed.")
	if found.failing == 0 {
		set(v1alpha1.ConditionEvaluated, metav1.ConditionTrue, v1alpha1.ReasonEvaluated, "No expression fails for any pod.")
		return
	}
	set(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, v1alpha1.ReasonEvaluationFailed, failureMessage(found))
}

func failureMessage(found report) string {
	var text strings.Builder
	fmt.Fprintf(&text, "An expression fails for %d ", found.failing)
	if found.failing == 1 {
		text.WriteString("pod, which is therefore not intercepted")
	} else {
		text.WriteString("pods, which are therefore not intercepted")
	}
	if found.example != "" {
		fmt.Fprintf(&text, "; for example %s", found.example)
	}
	text.WriteString(". Check optional fields with has().")
	return text.String()
}
