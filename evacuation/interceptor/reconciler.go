package interceptor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// reconciler runs one interceptor: it gathers the request's state, lets step decide,
// calls the interceptor and reports.
type reconciler struct {
	Options
	client   client.Client
	live     client.Reader
	reports  client.Client // Writes reports.
	impl     Interceptor
	canceler Canceler // nil if it cannot cancel
	goner    Goner    // nil if it has nothing to clean up

	states  turnStates
	running running
}

var _ reconcile.Reconciler = &reconciler{}

// newReconciler expects complete Options, Recorder included.
func newReconciler(c client.Client, live client.Reader, impl Interceptor, o Options) *reconciler {
	canceler, _ := impl.(Canceler)
	goner, _ := impl.(Goner)
	return &reconciler{Options: o, client: c, live: live, reports: c, impl: impl, canceler: canceler, goner: goner}
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
	er, err := r.get(ctx, r.client, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := r.states.get(key)
	switch over := before.Target.RequestUID != "" && (er == nil || er.UID != before.Target.RequestUID); {
	case over && before.Saved:
		r.states.forget(key) // Nothing was begun that could be undone.
	case over:
		// First, end what was begun for a request that no longer exists.
		result, settled, err := r.settle(ctx, key, before, er)
		if err != nil || !settled {
			return result, err
		}
	}
	if er == nil {
		return reconcile.Result{}, nil
	}
	r.running.isFor(key, er.UID)
	return r.observe(ctx, turn, er)
}

// observe handles an existing request.
func (r *reconciler) observe(ctx, turn context.Context, er *v1alpha1.EvictionRequest) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(er)
	state := r.recall(er)
	in := r.input(er, state)
	if in.Turn == noTurn && r.mustSave(er) {
		return reconcile.Result{}, r.save(ctx, er, state)
	}
	if in.Turn == noTurn || in.Turn == podGone && !in.CanGone {
		r.states.forget(key)
		return reconcile.Result{}, nil
	}
	begun := state.Target.RequestUID != "" && !state.Saved
	state.Saved = false
	if !begun && !r.Selector.Matches(labelSet(er)) {
		return reconcile.Result{}, nil // Another process has it, and may have begun.
	}
	known := begun || !in.Item.StartedAt.IsZero()
	state.Target = r.target(er, state)
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
	return r.report(ctx, er, *answer)
}

// settle ends what was begun for a request that is gone or was recreated. It reports
// whether the new one may begin.
func (r *reconciler) settle(ctx context.Context, key types.NamespacedName, known turnState, er *v1alpha1.EvictionRequest) (_ reconcile.Result, settled bool, _ error) {
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
	if er != nil && turnOf(er, r.Name) == active {
		// The new request wants what cannot be stopped anyway.
		r.states.set(key, turnState{Target: r.target(er, turnState{}), NoReturn: true})
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
func (r *reconciler) input(er *v1alpha1.EvictionRequest, state turnState) input {
	in := input{
		Turn:      turnOf(er, r.Name),
		Item:      itemOf(er, r.Name),
		Settled:   state.Settled,
		NoReturn:  state.NoReturn || itemOf(er, r.Name).Forbidden,
		Trial:     v1alpha1.IsTrial(er),
		CanCancel: r.canceler != nil,
		CanGone:   r.goner != nil,
		Interval:  r.intervalFor(v1alpha1.HeartbeatDeadlineOf(er, r.Name)),
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
func (r *reconciler) recall(er *v1alpha1.EvictionRequest) turnState {
	known := r.states.get(client.ObjectKeyFromObject(er))
	if known.Target.RequestUID != er.UID {
		return turnState{}
	}
	return known
}

// target returns what the interceptor is told.
func (r *reconciler) target(er *v1alpha1.EvictionRequest, state turnState) Target {
	t := Target{
		Request:     client.ObjectKeyFromObject(er),
		RequestUID:  er.UID,
		Pod:         types.NamespacedName{Namespace: er.Namespace, Name: er.Spec.Target.Pod.Name},
		PodUID:      er.Spec.Target.Pod.UID,
		NodeName:    er.Status.NodeName,
		Labels:      maps.Clone(er.Labels),
		ActivatedAt: state.Target.ActivatedAt,
		StartedAt:   shift(r.input(er, state).Item.StartedAt, -r.ServerClock.Offset()),
	}
	if at := er.Status.Deadline; at != nil {
		t.Deadline = shift(at.Time, -r.ServerClock.Offset())
	}
	for _, requester := range er.Spec.Requesters {
		t.Requesters = append(t.Requesters, requester.Name)
	}
	if at := er.Status.ActivationTime; at != nil && turnOf(er, r.Name) == active {
		t.ActivatedAt = shift(at.Time, -r.ServerClock.Offset())
	}
	return t
}

// get returns the request, nil if there is none.
func (r *reconciler) get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*v1alpha1.EvictionRequest, error) {
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
	request := &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest",
		Namespace: t.Request.Namespace, Name: t.Request.Name, UID: t.RequestUID,
	}
	pod := &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: t.Pod.Namespace, Name: t.Pod.Name, UID: t.PodUID,
	}
	events.Emit(r.Recorder, request, pod, e)
}
