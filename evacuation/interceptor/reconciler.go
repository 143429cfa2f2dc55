package interceptor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// reconciler runs one interceptor: it gathers the request's state, lets step decide,
// calls the interceptor and reports.
type reconciler struct {
	Options
	client   client.Client
	live     client.Reader
	reports  client.Client // Writes reports.
	api      dialect
	impl     Interceptor
	canceler Canceler // nil if it cannot cancel
	goner    Goner    // nil if it has nothing to clean up

	states  turnStates
	running running
}

var _ reconcile.Reconciler = &reconciler{}

// newReconciler expects complete Options, Recorder included. Their Name is that in this API.
func newReconciler(api dialect, c client.Client, live client.Reader, impl Interceptor, o Options) *reconciler {
	canceler, _ := impl.(Canceler)
	goner, _ := impl.(Goner)
	return &reconciler{Options: o, api: api, client: c, live: live, reports: c, impl: impl, canceler: canceler, goner: goner}
}

// notYet is after how long a Cancel or Gone that has to wait is called again.
const notYet = 3 * time.Second

// Reconcile handles one request.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcile(ctx, req)
	if errors.Is(err, ErrNotYet) {
		log.FromContext(ctx).V(1).Info("Waiting for the end of an evacuation", "reason", err.Error())
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	return result, err
}

func (r *reconciler) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	turn, end := r.running.begin(ctx, key)
	defer end()
	q, err := r.api.find(ctx, r.client, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := r.states.get(key)
	switch over := before.Target.RequestUID != "" && (q == nil || q.Target.RequestUID != before.Target.RequestUID); {
	case over && before.Saved:
		r.states.forget(key) // Nothing was begun that could be undone.
	case over:
		// First, end what was begun for a request that no longer exists.
		result, settled, err := r.settle(ctx, key, before, q)
		if err != nil || !settled {
			return result, err
		}
	}
	if q == nil {
		return reconcile.Result{}, nil
	}
	r.running.isFor(key, q.Target.RequestUID)
	return r.observe(ctx, turn, q)
}

// observe handles an existing request.
func (r *reconciler) observe(ctx, turn context.Context, q *request) (reconcile.Result, error) {
	key := q.Key
	state := r.recall(q)
	in := r.input(q, state)
	if in.Turn == noTurn && q.MustSave && r.Save != nil && r.Selector.Matches(labels.Set(q.Target.Labels)) {
		return reconcile.Result{}, r.save(ctx, q, state)
	}
	if in.Turn == noTurn || in.Turn == podGone && !in.CanGone {
		r.states.forget(key)
		return reconcile.Result{}, nil
	}
	begun := state.Target.RequestUID != "" && !state.Saved
	state.Saved = false
	if q.OfPod && step(in, r.Clock.Now()).Call != callNothing {
		if err := r.describe(ctx, q, state); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !begun && !r.Selector.Matches(labels.Set(q.Target.Labels)) {
		return reconcile.Result{}, nil // Another process has it, and may have begun.
	}
	known := begun || !in.Item.StartedAt.IsZero()
	state.Target = r.target(q, state)
	switch step(in, r.Clock.Now()).Call {
	case callCancel:
		settled, err := r.undo(ctx, key, &state, known)
		if err != nil || settled || stopping(ctx) {
			return reconcile.Result{}, err
		}
		in.NoReturn = state.NoReturn
	case callGone:
		return reconcile.Result{}, r.cleanUp(ctx, key, &state)
	case callEvacuate, callNothing:
	}
	if step(in, r.Clock.Now()).Call != callEvacuate {
		if in.NoReturn { // Passed over: others continue, and we stop for good.
			state.Settled = true
			r.states.set(key, state)
		}
		return reconcile.Result{}, nil
	}
	if in.Turn != active {
		turn = ctx // The turn is already over, but the work continues.
	}
	answer, err := r.advance(ctx, turn, key, &state)
	if answer == nil || err != nil {
		return reconcile.Result{}, err
	}
	if errors.Is(context.Cause(turn), errTurnOver) {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil // Do not report it.
	}
	return r.report(ctx, q, *answer)
}

// settle ends what was begun for a request that is gone or was recreated. It reports
// whether the new one may begin.
func (r *reconciler) settle(ctx context.Context, key types.NamespacedName, known turnState, q *request) (_ reconcile.Result, settled bool, _ error) {
	in := input{
		Turn: calledOff, Deleted: true, Settled: known.Settled, NoReturn: known.NoReturn,
		CanCancel: r.canceler != nil, CanGone: r.goner != nil, Interval: r.HeartbeatInterval,
	}
	if known.PodGone {
		in.Turn = podGone
	}
	if step(in, r.Clock.Now()).Call == callGone {
		if err := r.cleanUp(ctx, key, &known); err != nil || stopping(ctx) {
			return reconcile.Result{}, false, err
		}
		in.Settled = true
	}
	if step(in, r.Clock.Now()).Call == callCancel {
		undone, err := r.undo(ctx, key, &known, true)
		if err != nil || stopping(ctx) {
			return reconcile.Result{}, false, err
		}
		in.Settled, in.NoReturn = undone, known.NoReturn
	}
	if step(in, r.Clock.Now()).Call != callEvacuate {
		r.states.forget(key)
		return reconcile.Result{}, true, nil
	}
	if q != nil && q.Turn == active {
		// The new request wants what cannot be stopped anyway.
		r.states.set(key, turnState{Target: r.target(q, turnState{}), NoReturn: true})
		return reconcile.Result{}, true, nil
	}
	answer, err := r.advance(ctx, ctx, key, &known)
	if answer == nil || err != nil {
		return reconcile.Result{}, false, err
	}
	in.Answer = answer
	d := step(in, r.Clock.Now())
	if d.Settled {
		r.states.forget(key)
	}
	return r.wakeAt(d.WakeAt), d.Settled, nil
}

// advance calls Evacuate. There is no answer if the process is stopping.
func (r *reconciler) advance(ctx, turn context.Context, key types.NamespacedName, state *turnState) (*Progress, error) {
	r.states.set(key, *state) // It has begun, whatever the result.
	answer, err := r.evacuate(turn, state.Target)
	if answer.PointOfNoReturn && !state.NoReturn {
		state.NoReturn = true
		r.states.set(key, *state)
	}
	switch {
	case stopping(ctx):
		return nil, nil
	case err == nil, errors.Is(context.Cause(turn), errTurnOver):
		return &answer, nil
	}
	r.emit(state.Target, events.EvacuationFailed(r.Name, state.Target.Pod.Name, err))
	return nil, fmt.Errorf("evacuate pod %s: %w", state.Target.Pod, err)
}

// undo calls Cancel and reports whether all is undone; if not, there is an error, or no
// way back. Work that this process does not know about is undone silently: there may
// have been nothing.
func (r *reconciler) undo(ctx context.Context, key types.NamespacedName, state *turnState, known bool) (settled bool, _ error) {
	err := r.cancel(ctx, state.Target)
	switch {
	case stopping(ctx):
		return false, nil
	case errors.Is(err, ErrPointOfNoReturn):
		state.NoReturn = true
		r.states.set(key, *state)
		r.emit(state.Target, events.PointOfNoReturn(r.Name, state.Target.Pod.Name))
		return false, nil
	case err != nil:
		r.states.set(key, *state) // So that nothing new begins before it is undone.
		if errors.Is(err, ErrNotYet) {
			return false, err
		}
		r.emit(state.Target, events.CancelFailed(r.Name, state.Target.Pod.Name, err))
		return false, fmt.Errorf("cancel evacuation of pod %s: %w", state.Target.Pod, err)
	}
	state.Settled = true
	r.states.set(key, *state)
	if known {
		r.emit(state.Target, events.EvacuationCanceled(r.Name, state.Target.Pod.Name))
	}
	log.FromContext(ctx).Info("Undid an evacuation", "pod", state.Target.Pod.Name)
	return true, nil
}

// cleanUp calls Gone, until it succeeds.
func (r *reconciler) cleanUp(ctx context.Context, key types.NamespacedName, state *turnState) error {
	err := r.gone(ctx, state.Target)
	switch {
	case stopping(ctx):
		return nil
	case errors.Is(err, ErrNotYet):
		r.states.set(key, *state)
		return err
	case err != nil:
		r.states.set(key, *state)
		r.emit(state.Target, events.CancelFailed(r.Name, state.Target.Pod.Name, err))
		return fmt.Errorf("clean up after pod %s: %w", state.Target.Pod, err)
	}
	state.Settled = true
	r.states.set(key, *state)
	log.FromContext(ctx).V(1).Info("Cleaned up after a pod that ended in the turn", "pod", state.Target.Pod.Name)
	return nil
}

// stopping reports whether the process is stopping: then the result of a call means
// nothing.
func stopping(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// input gathers the input of step.
func (r *reconciler) input(q *request, state turnState) input {
	in := input{
		Turn:      q.Turn,
		Item:      q.Item,
		Start:     q.Start,
		Settled:   state.Settled,
		NoReturn:  state.NoReturn || q.Item.Forbidden,
		Revocable: q.Revocable,
		CanCancel: r.canceler != nil,
		CanGone:   r.goner != nil,
		Interval:  r.intervalFor(q.HeartbeatDeadline),
	}
	if state.Item.HeartbeatAt.After(in.Item.HeartbeatAt) {
		in.Item = state.Item
	}
	return in
}

// intervalFor is the time between two heartbeats for a heartbeat deadline, 0 if that is the
// installation's: two may be lost without costing the turn, as far as the API lets them come.
func (r *reconciler) intervalFor(deadline time.Duration) time.Duration {
	if deadline == 0 {
		return r.HeartbeatInterval
	}
	return max(MinHeartbeatInterval, min(r.HeartbeatInterval, deadline/3))
}

// recall returns the state of this request.
func (r *reconciler) recall(q *request) turnState {
	known := r.states.get(q.Key)
	if known.Target.RequestUID != q.Target.RequestUID {
		return turnState{}
	}
	return known
}

// target returns what the interceptor is told.
func (r *reconciler) target(q *request, state turnState) Target {
	t, offset := q.Target, r.ServerClock.Offset()
	t.Labels = maps.Clone(t.Labels)
	t.StartedAt = shift(r.input(q, state).Item.StartedAt, -offset)
	t.Deadline = shift(t.Deadline, -offset)
	t.ActivatedAt = shift(t.ActivatedAt, -offset)
	if t.ActivatedAt.IsZero() {
		t.ActivatedAt = state.Target.ActivatedAt
	}
	return t
}

// wakeAt requeues for that time; zero leaves it to events.
func (r *reconciler) wakeAt(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(r.Clock.Now()), time.Millisecond)}
}

// emit records an event about the request. It uses a reference without the version, so
// that repetitions stay one Event (statement 112).
func (r *reconciler) emit(t Target, e events.Event) {
	kind := r.api.kind()
	request := &corev1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
		Namespace: t.Request.Namespace, Name: t.Request.Name, UID: t.RequestUID,
	}
	pod := &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: t.Pod.Namespace, Name: t.Pod.Name, UID: t.PodUID,
	}
	events.Emit(r.Recorder, request, pod, e)
}
