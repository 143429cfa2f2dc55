// Package evictor is imperative-eviction.k8s.io, the last interceptor of every pod. It
// calls the eviction subresource, in the order of a queue per budget.
package evictor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// ConflictRetry is a fallback: after a conflict the watch event normally comes first.
const ConflictRetry = 5 * time.Second

// syncRetry is when to retry while the guarded pods are unknown.
const syncRetry = time.Second

// DefaultTimeout is how long a call of the eviction subresource may take.
const DefaultTimeout = 10 * time.Second

// FailureCounter counts failed evictions per request (statement 83).
type FailureCounter interface {
	ImperativeEvictionFailed(namespace, name, pod string)
	// Forget removes the count of a request that is gone.
	Forget(namespace, name string)
}

var _ FailureCounter = &metrics.Requests{}

// Reconciler is imperative-eviction.k8s.io, the interceptor of last resort. It is a
// client of the API like any other interceptor: it acts when its name is active
// and reports in its own item. See Step for what it does, and budgetQueue for
// when.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Clock also drives the queue, which SetupWithManager makes.
	Clock    clock.WithTicker
	Policy   Policy
	Recorder eventsclient.EventRecorder
	Metrics  *metrics.Evictor
	Failures FailureCounter
	// Timeout bounds one call of the eviction subresource. Default
	// DefaultTimeout.
	Timeout time.Duration
	// MaxConcurrentReconciles is how many pods are evicted at a time. Default 50.
	MaxConcurrentReconciles int
	// Synced reports whether Guarded knows all it answers from.
	Synced func() bool
	// Guarded reports whether a guard keeps evictions away from the pod, which the API
	// server or our webhook would refuse.
	Guarded func(pod *corev1.Pod) bool
	// Native are the native Evictions. Optional.
	Native Native
	// Exhausted knows which EvictionBudgets consent that a pod is deleted in spite of its
	// PodDisruptionBudget. Optional: without it, none does.
	Exhausted Exhausted

	call    callFunc
	remove  callFunc
	budgets *budgetQueue

	mu sync.Mutex
	// last has the last attempt of each request for which it is our turn.
	last map[types.NamespacedName]Attempt
	// queue gets the requests that a budget wakes.
	queue controllers.Queue
}

// IsTurn reports whether the evictor may act on the request: it is active
// and all others had their turn (statement 76), the request is neither canceled
// nor finished (statement 88) nor being deleted (statement 95). The trial of a hook wants
// no eviction, whatever became of the hook's turn.
func IsTurn(er *v1alpha1.EvictionRequest) bool {
	if er.DeletionTimestamp != nil || er.Spec.Target.Pod == nil || v1alpha1.IsUnwanted(er) || v1alpha1.IsTrial(er) ||
		v1alpha1.IsFinished(er) ||
		!slices.Contains(er.Status.ActiveInterceptors, v1alpha1.ImperativeEvictionInterceptor) {
		return false
	}
	return !slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool {
		return i.Name != v1alpha1.ImperativeEvictionInterceptor && !slices.Contains(er.Status.ProcessedInterceptors, i.Name)
	})
}

var _ reconcile.Reconciler = &Reconciler{}

// Reconcile gathers, decides and applies for one request.
func (e *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	w, err := e.wishOf(ctx, key, false)
	if err != nil {
		return reconcile.Result{}, err
	}
	if w == nil {
		// A call that outlasts the request counts after the request controller has
		// forgotten it (statement 108).
		e.Failures.Forget(key.Namespace, key.Name)
		e.forget(key)
		return reconcile.Result{}, nil
	}
	pod, state := (*corev1.Pod)(nil), PodUnseen
	if target := w.er.Spec.Target.Pod; target != nil {
		if pod, err = getPod(ctx, e.Client, types.NamespacedName{Namespace: key.Namespace, Name: target.Name}); err != nil {
			return reconcile.Result{}, err
		}
		state = PodStateOf(pod, target.UID)
	}
	switch over, err := e.ended(ctx, w, state); {
	case err != nil:
		return reconcile.Result{}, err
	case over:
		e.forget(key)
		return e.afterReport(e.completeNative(ctx, w.native, state), time.Time{})
	case !w.isTurn():
		e.forget(key)
		return reconcile.Result{}, nil
	}
	if state == PodRunning {
		if !e.Synced() {
			return reconcile.Result{RequeueAfter: syncRetry}, nil
		}
		if e.Guarded(pod) {
			state = PodGuarded
		}
	}
	if state == PodRunning {
		e.enqueue(e.budgets.Relabel(key, pod.Labels))
	} else {
		e.enqueue(e.budgets.Forget(key))
	}
	decision := Step(e.input(w.er, pod, state), e.Clock.Now(), e.Policy)
	if decision.Action == Call {
		// The cache may miss a cancellation, and the event of a budget can overtake it.
		// An eviction cannot be undone, so read live.
		live, err := e.wishOf(ctx, key, true)
		if err != nil {
			return reconcile.Result{}, err
		}
		if !w.lasts(live) {
			e.forget(key)
			return reconcile.Result{}, nil
		}
		w = live
		if err := e.attempt(ctx, w, pod, decision.Trigger); err != nil {
			return reconcile.Result{}, err
		}
		decision = e.afterwards(w.er, pod, state)
	}
	return e.tell(ctx, w, pod, state, decision)
}

// afterwards decides what to report once there was an attempt. If a budget changed during the
// call, its wake-up is already queued; this attempt is reported first. If its pause is over
// already, because the process stood still, the next one is due at once.
func (e *Reconciler) afterwards(er *v1alpha1.EvictionRequest, pod *corev1.Pod, state PodState) Decision {
	in, now := e.input(er, pod, state), e.Clock.Now()
	in.Woken = false
	d := Step(in, now, e.Policy)
	if d.Action == Call {
		d.WakeAt = now
	}
	return d
}

// tell writes the reports of a decision.
func (e *Reconciler) tell(ctx context.Context, w *wish, pod *corev1.Pod, state PodState, d Decision) (reconcile.Result, error) {
	if w.stored && d.Report != nil {
		if err := e.report(ctx, w.er, *d.Report); err != nil {
			return e.afterReport(err, d.WakeAt)
		}
		if state == PodUnsupported && reportOf(w.er).StartedAt.IsZero() {
			e.announce(w, false, events.EvictionNotSupported(unsupportedMessage))
		}
	}
	if w.native == nil {
		return e.wakeAt(d.WakeAt), nil
	}
	item := reportOf(requestOf(w.native))
	if spoken := e.afterwards(requestOf(w.native), pod, state).Report; spoken != nil {
		item = *spoken
	}
	if state == PodUnsupported && item.HeartbeatAt.IsZero() {
		e.announce(w, false, events.EvictionNotSupported(unsupportedMessage))
	}
	due, err := e.reportNative(ctx, w.native, item, e.Clock.Now())
	if due.IsZero() || !d.WakeAt.IsZero() && d.WakeAt.Before(due) {
		due = d.WakeAt
	}
	return e.afterReport(err, due)
}

// afterReport is what follows a report. If another writer was faster, the report is derived
// again from what is stored; nothing is lost.
func (e *Reconciler) afterReport(err error, wakeAt time.Time) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		retry := e.Clock.Now().Add(ConflictRetry)
		if !wakeAt.IsZero() {
			retry = controllers.Earlier(wakeAt, retry)
		}
		return e.wakeAt(retry), nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("report on eviction request: %w", err)
	}
	return e.wakeAt(wakeAt), nil
}

// wakeAt requeues for that time; zero leaves it to events.
func (e *Reconciler) wakeAt(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(e.Clock.Now()), time.Millisecond)}
}

// attempt calls the eviction subresource once and remembers the answer. It
// returns an error only if nothing can be said about the attempt.
func (e *Reconciler) attempt(ctx context.Context, w *wish, pod *corev1.Pod, trigger translate.Trigger) error {
	er, key := w.er, client.ObjectKeyFromObject(w.er)
	target := target{NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID}
	before := e.recall(key)
	last := Attempt{
		Budgets: e.budgets.Begin(key, pod.Name, pod.Labels, er.CreationTimestamp.Time),
		Retries: before.Retries, Since: before.Since,
	}
	outcome := budgetOther
	// Whatever happens, the place in flight must not be lost.
	defer func() { e.enqueue(e.budgets.End(key, outcome)) }()

	grace := largestGracePeriod(pod, er.Spec.Requesters)
	err := e.call(ctx, target, grace)
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("evict pod %s: %w", target, ctx.Err()) // The process is stopping.
	}
	logger := log.FromContext(ctx).WithValues("pod", pod.Name, "trigger", trigger)
	last.Answer = e.judged(ctx, key, last.Budgets, e.classified(ctx, pod, err, len(last.Budgets)), trigger)
	last.Consent = e.consent(ctx, w, pod, &last, grace)
	last.At = e.Clock.Now() // The pause begins when all is answered, which may have taken longer.
	e.Metrics.Attempt(string(last.Result), string(trigger))
	logger = logger.WithValues("result", last.Result)
	switch {
	case last.Result.Failed():
		last.Fail(reportOf(er).Retries)
		if last.Result.BlockedByBudget() {
			outcome = budgetRefused
		}
		e.Failures.ImperativeEvictionFailed(er.Namespace, er.Name, pod.Name)
		e.announce(w, true, events.EvictionRefused(
			reasons[last.Result], pod.Name, string(trigger), strings.TrimSpace(last.Explain(last.Budgets)+" "+last.Consent.Says), last.Retries))
		logger.V(1).Info("The eviction failed", "retries", last.Retries, "budgets", last.Budgets, "detail", last.Detail)
	case last.Result == translate.ResultEvicted && last.Consent.Deletes:
		e.deleted(er, pod, last.Consent)
		logger.Info("The pod was deleted in spite of its PodDisruptionBudget", "budgets", last.Budgets, "by", last.Consent.By)
	case last.Result == translate.ResultEvicted:
		outcome = budgetAccepted
		if w.stored {
			events.Emit(e.Recorder, er, events.PodReference(er), events.EvictionAccepted(pod.Name, string(trigger)))
		}
		logger.Info("The eviction was accepted")
	default:
		logger.V(1).Info("The pod is gone already")
	}
	e.remember(key, last)
	return nil
}

// report writes the evictor's own item, and nothing else.
func (e *Reconciler) report(ctx context.Context, er *v1alpha1.EvictionRequest, item Report) error {
	report := apply.InterceptorStatus().
		WithName(v1alpha1.ImperativeEvictionInterceptor).
		WithStartTime(metav1.NewTime(item.StartedAt)).
		WithHeartbeatTime(metav1.NewTime(item.HeartbeatAt)).
		WithMessage(item.Message)
	if item.Retries > 0 {
		report.WithRetries(item.Retries)
	}
	if !item.ExpectedAt.IsZero() {
		report.WithExpectedFinishTime(metav1.NewTime(item.ExpectedAt))
	}
	if r := item.Refusal; r != nil {
		report.WithRefusal(apply.EvictionRefusal().WithReason(r.Reason).WithBudgets(r.Budgets...).WithMessage(r.Message))
	}
	return e.Client.SubResource("status").Apply(ctx,
		apply.EvictionRequest(er.Name, er.Namespace).
			WithResourceVersion(er.ResourceVersion).
			WithStatus(apply.EvictionRequestStatus().WithInterceptors(report)),
		client.FieldOwner(v1alpha1.ImperativeEvictionInterceptor), client.ForceOwnership)
}

// input gathers the input of Step.
func (e *Reconciler) input(er *v1alpha1.EvictionRequest, pod *corev1.Pod, state PodState) Input {
	key := client.ObjectKeyFromObject(er)
	in := Input{
		Pod:    state,
		Item:   reportOf(er),
		Last:   e.recall(key),
		Woken:  e.budgets.Woken(key),
		Behind: e.budgets.Behind(key, e.Policy.TimerPlaces),
	}
	if er.Status.ActivationTime != nil {
		in.ActivatedAt = er.Status.ActivationTime.Time
	}
	in.Last.Answer = in.Last.Judged(e.budgets.Never(key))
	if state == PodTerminating {
		in.EndsBy, in.Finalizers = pod.DeletionTimestamp.Time, pod.Finalizers
	}
	return in
}

// reportOf reads the evictor's own item.
func reportOf(er *v1alpha1.EvictionRequest) Report {
	stored := v1alpha1.ReportOf(er, v1alpha1.ImperativeEvictionInterceptor)
	item := Report{Retries: stored.Retries, Message: stored.Message, Refusal: stored.Refusal}
	if stored.StartTime != nil {
		item.StartedAt = stored.StartTime.Time
	}
	if stored.HeartbeatTime != nil {
		item.HeartbeatAt = stored.HeartbeatTime.Time
	}
	if stored.ExpectedFinishTime != nil {
		item.ExpectedAt = stored.ExpectedFinishTime.Time
	}
	return item
}

// getRequest returns the request, nil if there is none.
func getRequest(ctx context.Context, reader client.Reader, key types.NamespacedName) (*v1alpha1.EvictionRequest, error) {
	er := &v1alpha1.EvictionRequest{}
	switch err := reader.Get(ctx, key, er); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get eviction request %s: %w", key, err)
	default:
		return er, nil
	}
}

// getPod returns what the reader has under that name, nil for nothing.
func getPod(ctx context.Context, reader client.Reader, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, key, pod); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get pod %s: %w", key, err)
	}
	return pod, nil
}

func (e *Reconciler) recall(key types.NamespacedName) Attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last[key]
}

func (e *Reconciler) remember(key types.NamespacedName, last Attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last[key] = last
}

// forget drops what is remembered of a request for which it is no longer our turn.
func (e *Reconciler) forget(key types.NamespacedName) {
	e.mu.Lock()
	delete(e.last, key)
	e.mu.Unlock()
	e.enqueue(e.budgets.Forget(key))
}

// enqueue lets the requests that a budget wakes try immediately.
func (e *Reconciler) enqueue(keys []types.NamespacedName) {
	for _, key := range keys {
		e.queue.Add(reconcile.Request{NamespacedName: key})
	}
}
