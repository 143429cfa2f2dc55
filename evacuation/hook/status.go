package hook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	// statusEvery is the least time between two writes of one generation's conditions:
	// pods change all the time.
	statusEvery = 10 * time.Second
	// templateCheck is how often the API server is asked again about a template.
	templateCheck = 10 * time.Minute
)

// Coverage is what the selectors and conditions of a hook cover.
type Coverage struct {
	UID        types.UID
	Generation int64
	// Pods is how many pods it covers, and Failing for how many a condition fails, as for
	// Example.
	Pods, Failing int
	Example       string
	// Refused and Reason say why the selectors or conditions are not accepted.
	Refused, Reason string
}

// reporter writes the conditions of the hooks.
type reporter struct {
	*hookInterceptor
	coverage func(types.NamespacedName) (Coverage, bool)
	gone     func(types.NamespacedName)

	queue controllers.Waker

	mu sync.Mutex
	of map[types.NamespacedName]*reported
}

// reported is what the reporter remembers of one hook.
type reported struct {
	uid        types.UID
	generation int64
	wrote      time.Time
	checked    time.Time
	problem    *problemError
}

// covers is told the hooks whose coverage has changed.
func (r *reporter) covers(hook types.NamespacedName) {
	r.queue.Wake(hook, 0)
}

var _ reconcile.Reconciler = &reporter{}

// Reconcile writes the conditions of one hook, if they have changed.
func (r *reporter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	hook := &v1alpha1.EvacuationHook{}
	err := r.client.Get(ctx, req.NamespacedName, hook)
	switch {
	case apierrors.IsNotFound(err):
		r.forgetReported(req.NamespacedName)
		r.gone(req.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get EvacuationHook %s: %w", req.NamespacedName, err)
	}
	known := r.reportedOf(hook)
	now := r.clock.Now()
	if wait := known.wrote.Add(statusEvery).Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	covered, ok := r.coverage(req.NamespacedName)
	if !ok || covered.UID != hook.UID || covered.Generation != hook.Generation {
		return reconcile.Result{RequeueAfter: time.Second}, nil // It is being counted.
	}
	p := r.compiled.get(hook)
	problem := p.problem
	if problem == nil {
		if now.Sub(known.checked) >= templateCheck {
			if known.problem, err = r.problemOf(ctx, p); err != nil {
				return reconcile.Result{}, err
			}
			known.checked = now
		}
		problem = known.problem
	}
	err = r.runs.update(ctx, hook, func(status *v1alpha1.EvacuationHookStatus) error {
		before := status.DeepCopy()
		describe(status, p, covered, problem, now)
		if equality.Semantic.DeepEqual(before, status) {
			return errUnchanged
		}
		known.wrote = now
		return nil
	})
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: templateCheck}, nil
}

// reportedOf is the memory of a generation. Reconciliations of a hook follow each other,
// so its fields need no lock.
func (r *reporter) reportedOf(hook *v1alpha1.EvacuationHook) *reported {
	key := types.NamespacedName{Namespace: hook.Namespace, Name: hook.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.of[key]; known != nil && known.uid == hook.UID && known.generation == hook.Generation {
		return known
	}
	if r.of == nil {
		r.of = map[types.NamespacedName]*reported{}
	}
	r.of[key] = &reported{uid: hook.UID, generation: hook.Generation}
	return r.of[key]
}

func (r *reporter) forgetReported(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, key)
}

// describe sets the conditions to the findings.
func describe(status *v1alpha1.EvacuationHookStatus, p *compiled, covered Coverage, problem *problemError, now time.Time) {
	generation := p.hook.Generation
	status.ObservedGeneration, status.MatchingPods = generation, new(int32(min(covered.Pods, 1<<31-1))) //nolint:gosec // It is limited in the same expression.
	set := func(kind string, ok bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)}
		if !ok {
			c.Status = metav1.ConditionFalse
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	fate := "The pods it covers are held until that is repaired."
	if p.rules.Continue {
		fate = "The pods it covers are evicted without it until that is repaired."
	}
	accepted := "The selectors, expressions and templates are well formed."
	if p.shortened > 0 {
		accepted += fmt.Sprintf(" An attempt has %s, not %s: the administrator allows less for all attempts together.", p.rules.Deadline, p.shortened)
	}
	switch {
	case covered.Refused != "":
		set(v1alpha1.ConditionAccepted, false, covered.Reason, covered.Refused)
	case problem != nil:
		set(v1alpha1.ConditionAccepted, false, problem.reason, oneLine(problem)+". "+fate)
	default:
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, accepted)
	}
	if covered.Failing == 0 {
		set(v1alpha1.ConditionEvaluated, true, v1alpha1.ReasonEvaluated, "No expression fails for any pod.")
	} else {
		set(v1alpha1.ConditionEvaluated, false, v1alpha1.ReasonEvaluationFailed, fmt.Sprintf("An expression fails for %d pods, which are therefore not covered; for example %s", covered.Failing, covered.Example))
	}
	if covered.Pods > 0 {
		set(v1alpha1.ConditionCovers, true, v1alpha1.ReasonCoversPods, fmt.Sprintf("It covers %d pods.", covered.Pods))
	} else {
		set(v1alpha1.ConditionCovers, false, v1alpha1.ReasonCoversNone, "It covers no pods.")
	}
}

// noteLast sets the condition LastRun if a run has ended.
func noteLast(status *v1alpha1.EvacuationHookStatus, generation int64, run v1alpha1.HookRun, now time.Time) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionLastRun, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded,
		Message: fmt.Sprintf("Pod %s, attempt %d.", run.Pod, run.Attempt), ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	switch run.Phase {
	case v1alpha1.HookSucceeded:
	case v1alpha1.HookHeld, v1alpha1.HookContinued:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonFailed
		c.Message = fmt.Sprintf("Pod %s, attempt %d: %s.", run.Pod, run.Attempt, run.Message)
	default:
		return
	}
	meta.SetStatusCondition(&status.Conditions, c)
}
