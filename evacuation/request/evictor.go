package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
)

// evictConflictRetry is when to look again after a conflict, in case the event of
// the newer version is lost.
const evictConflictRetry = 5 * time.Second

// evictSyncRetry is when to look again while it is not known who is guarded.
const evictSyncRetry = time.Second

// DefaultEvictTimeout is how long a call of the eviction subresource may take.
const DefaultEvictTimeout = 10 * time.Second

// EvictFailureCounter counts failed evictions per request (statement 83).
type EvictFailureCounter interface {
	ImperativeEvictionFailed(namespace, name, pod string)
	// Forget removes the count of a request that is gone.
	Forget(namespace, name string)
}

// Evictor is imperative-eviction.k8s.io, the interceptor of last resort. It is a
// client of the API like any other interceptor: it acts when its name is active
// and reports in its own item. See EvictStep for what it does, and budgetQueue for
// when.
type Evictor struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Clock also drives the queue, which SetupWithManager makes.
	Clock    clock.WithTicker
	Policy   EvictPolicy
	Recorder eventsclient.EventRecorder
	Metrics  *metrics.Evictor
	Failures EvictFailureCounter
	// Timeout bounds one call of the eviction subresource. Default
	// DefaultEvictTimeout.
	Timeout time.Duration
	// MaxConcurrentReconciles is how many pods are evicted at a time. Default 50.
	MaxConcurrentReconciles int
	// Synced reports whether Guarded knows all it answers from; nil means always.
	Synced func() bool
	// Guarded reports whether a guard keeps evictions away from the pod, which the API
	// server or our webhook would refuse; nil means that there are no guards.
	Guarded func(pod *corev1.Pod) bool

	call    evictCall
	budgets *budgetQueue

	mu sync.Mutex
	// last remembers the last attempt of each request whose turn is ours.
	last map[types.NamespacedName]EvictLast
	// queue takes those whom a budget wakes.
	queue evictQueue
}

// imperativeTurn reports whether the evictor may act on the request: it is active
// and all others had their turn (statement 76), the request is neither canceled
// nor finished (statement 88) nor being deleted (statement 95).
func imperativeTurn(er *v1alpha1.EvictionRequest) bool {
	if er.DeletionTimestamp != nil || er.Spec.Target.Pod == nil || len(er.Spec.Requesters) == 0 ||
		v1alpha1.IsFinished(er) ||
		!slices.Contains(er.Status.ActiveInterceptors, v1alpha1.ImperativeEvictionInterceptor) {
		return false
	}
	return !slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool {
		return i.Name != v1alpha1.ImperativeEvictionInterceptor && !slices.Contains(er.Status.ProcessedInterceptors, i.Name)
	})
}

// Reconcile gathers, decides and applies for one request.
func (e *Evictor) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	er, err := evictGetRequest(ctx, e.Client, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if er == nil {
		// A call that outlasted the request has counted after the request controller
		// forgot it (statement 108).
		e.Failures.Forget(key.Namespace, key.Name)
	}
	if er == nil || !imperativeTurn(er) {
		e.forget(key)
		return reconcile.Result{}, nil
	}
	pod, err := evictGetPod(ctx, e.Client, types.NamespacedName{Namespace: er.Namespace, Name: er.Spec.Target.Pod.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	state := evictPodState(pod, er.Spec.Target.Pod.UID)
	if state == EvictPodRunning && e.Guarded != nil {
		if e.Synced != nil && !e.Synced() {
			return reconcile.Result{RequeueAfter: evictSyncRetry}, nil
		}
		if e.Guarded(pod) {
			state = EvictPodGuarded
		}
	}
	if state == EvictPodRunning {
		e.enqueue(e.budgets.Relabel(key, pod.Labels))
	} else {
		e.enqueue(e.budgets.Forget(key))
	}
	decision := EvictStep(e.input(er, pod, state), e.Clock.Now(), e.Policy)
	if decision.Action == EvictCall {
		// The cache may be behind by a cancellation, and the event of a budget can
		// overtake it. What is done to a pod cannot be undone: look for real.
		live, err := evictGetRequest(ctx, e.APIReader, key)
		if err != nil {
			return reconcile.Result{}, err
		}
		if live == nil || live.UID != er.UID || !imperativeTurn(live) {
			e.forget(key)
			return reconcile.Result{}, nil
		}
		er = live
		if err := e.attempt(ctx, er, pod, decision.Trigger); err != nil {
			return reconcile.Result{}, err
		}
		in := e.input(er, pod, state)
		// If a budget moved while we asked, its wake-up is in the queue already; this
		// attempt is told of first.
		in.Woken = false
		decision = EvictStep(in, e.Clock.Now(), e.Policy)
	}
	if decision.Report != nil {
		switch err := e.report(ctx, er, *decision.Report); {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			// Somebody else was faster. The report is derived again from what is then
			// stored; nothing is lost.
			return e.wakeAt(controllers.Earlier(decision.WakeAt, e.Clock.Now().Add(evictConflictRetry))), nil
		case err != nil:
			return reconcile.Result{}, fmt.Errorf("report on eviction request: %w", err)
		}
		if state == EvictPodUnsupported && evictItem(er).StartedAt.IsZero() {
			events.EmitOnBoth(e.Recorder, er, events.EvictionNotSupported(evictUnsupportedMessage))
		}
	}
	return e.wakeAt(decision.WakeAt), nil
}

// wakeAt comes back at that time, which zero leaves to events.
func (e *Evictor) wakeAt(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(e.Clock.Now()), time.Millisecond)}
}

// attempt calls the eviction subresource once and remembers the answer. It
// returns an error only if nothing can be said about the attempt.
func (e *Evictor) attempt(ctx context.Context, er *v1alpha1.EvictionRequest, pod *corev1.Pod, trigger EvictTrigger) error {
	key := client.ObjectKeyFromObject(er)
	target := evictTarget{NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID}
	before := e.recall(key)
	last := EvictLast{
		Budgets: e.budgets.Begin(key, pod.Name, pod.Labels, er.CreationTimestamp.Time),
		Retries: before.Retries, Since: before.Since,
	}
	outcome := budgetOther
	// Whatever happens, the place in flight must not be lost.
	defer func() { e.enqueue(e.budgets.End(key, outcome)) }()

	err := e.call(ctx, target, largestGracePeriod(pod, er.Spec.Requesters))
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("evict pod %s: %w", target, ctx.Err()) // We are being stopped.
	}
	last.At = e.Clock.Now()
	last.evictionRefusal = classifyEviction(err, len(last.Budgets))
	logger := log.FromContext(ctx).WithValues("pod", pod.Name, "trigger", trigger)
	if last.Result == ResultConflict {
		if found, err := evictGetPod(ctx, e.APIReader, target.NamespacedName); err != nil {
			logger.Error(err, "Could not tell a replaced pod from a conflict, will try again")
		} else {
			last.Result = evictSettleConflict(pod, found)
		}
	}
	e.Metrics.Attempt(string(last.Result), string(trigger))
	logger = logger.WithValues("result", last.Result)
	switch {
	case last.Result.Failed():
		last.fail(evictItem(er).Retries)
		if last.Result.BlockedByBudget() {
			outcome = budgetRefused
		}
		e.Failures.ImperativeEvictionFailed(er.Namespace, er.Name, pod.Name)
		events.EmitSeriesOnBoth(e.Recorder, er, events.EvictionRefused(
			evictReasons[last.Result], pod.Name, string(trigger), last.Explain(last.Budgets), last.Retries))
		logger.V(1).Info("The eviction failed", "retries", last.Retries, "budgets", last.Budgets, "detail", last.Detail)
	case last.Result == ResultEvicted:
		outcome = budgetAccepted
		events.Emit(e.Recorder, er, events.PodReference(er), events.EvictionAccepted(pod.Name, string(trigger)))
		logger.Info("The eviction was accepted")
	default:
		logger.V(1).Info("The pod is gone already")
	}
	e.remember(key, last)
	return nil
}

// report writes the evictor's own item, and nothing else.
func (e *Evictor) report(ctx context.Context, er *v1alpha1.EvictionRequest, item EvictItem) error {
	report := apply.InterceptorStatus().
		WithName(v1alpha1.ImperativeEvictionInterceptor).
		WithStartTime(metav1.NewTime(item.StartedAt)).
		WithHeartbeatTime(metav1.NewTime(item.HeartbeatAt)).
		WithMessage(item.Message)
	if item.Retries > 0 {
		report.WithRetries(item.Retries)
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

// input is what EvictStep is to look at.
func (e *Evictor) input(er *v1alpha1.EvictionRequest, pod *corev1.Pod, state EvictPodState) EvictInput {
	key := client.ObjectKeyFromObject(er)
	in := EvictInput{
		Pod:    state,
		Item:   evictItem(er),
		Last:   e.recall(key),
		Woken:  e.budgets.Woken(key),
		Behind: e.budgets.Behind(key, e.Policy.TimerPlaces),
	}
	if er.Status.ActivationTime != nil {
		in.ActivatedAt = er.Status.ActivationTime.Time
	}
	if state == EvictPodTerminating {
		in.EndsBy, in.Finalizers = pod.DeletionTimestamp.Time, pod.Finalizers
	}
	return in
}

// evictItem reads the evictor's own item.
func evictItem(er *v1alpha1.EvictionRequest) EvictItem {
	stored := v1alpha1.ReportOf(er, v1alpha1.ImperativeEvictionInterceptor)
	item := EvictItem{Retries: stored.Retries, Message: stored.Message, Refusal: stored.Refusal}
	if stored.StartTime != nil {
		item.StartedAt = stored.StartTime.Time
	}
	if stored.HeartbeatTime != nil {
		item.HeartbeatAt = stored.HeartbeatTime.Time
	}
	return item
}

// evictGetRequest returns the request, nil if there is none.
func evictGetRequest(ctx context.Context, reader client.Reader, key types.NamespacedName) (*v1alpha1.EvictionRequest, error) {
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

// evictGetPod returns what the reader has under that name, nil for nothing.
func evictGetPod(ctx context.Context, reader client.Reader, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, key, pod); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get pod %s: %w", key, err)
	}
	return pod, nil
}

func (e *Evictor) recall(key types.NamespacedName) EvictLast {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last[key]
}

func (e *Evictor) remember(key types.NamespacedName, last EvictLast) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last[key] = last
}

// forget drops what is remembered of a request whose turn is not ours any more.
func (e *Evictor) forget(key types.NamespacedName) {
	e.mu.Lock()
	delete(e.last, key)
	e.mu.Unlock()
	e.enqueue(e.budgets.Forget(key))
}

// enqueue lets those whom a budget wakes try at once.
func (e *Evictor) enqueue(keys []types.NamespacedName) {
	for _, key := range keys {
		e.queue.Add(reconcile.Request{NamespacedName: key})
	}
}
