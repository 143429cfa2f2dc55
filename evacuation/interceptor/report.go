package interceptor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/events"
)

const (
	// reportTimeout limits the writing of one report.
	reportTimeout = 20 * time.Second
	// reportTries is how often a report is written again after conflicts.
	reportTries = 5
	// conflictRetry is a fallback if all of them failed or the turn is over: after a
	// conflict the watch event normally comes first.
	conflictRetry = 5 * time.Second
)

// errPanic is wrapped by the error of an interceptor that panicked.
var errPanic = errors.New("panic")

// report writes the result of Evacuate to the API server, if it is time. After a
// conflict it decides again with the newer request.
func (r *reconciler) report(ctx context.Context, q *request, answer Progress) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	name := q.Target.Request
	if beat := r.input(q, r.recall(q)).Item.HeartbeatAt; r.ServerClock != nil && beat.After(r.Clock.Now().Add(r.ServerClock.Offset()+minSkew)) {
		// Its own heartbeat is in the future: this clock was set back, and there would
		// be no report until it has caught up. Any answer shows the time.
		if _, err := r.api.get(ctx, r.live, name); err != nil {
			return reconcile.Result{}, err
		}
	}
	for range reportTries {
		state := r.recall(q)
		in := r.input(q, state)
		offset := r.ServerClock.Offset()
		in.Answer = answer.shifted(offset)
		d := step(in, r.Clock.Now().Add(offset))
		var err error
		if d.Report != nil {
			err = r.api.write(ctx, r.reports, r.FieldOwner, q, *d.Report)
		}
		switch {
		case err == nil:
			state.Settled = state.Settled || d.Settled
			if d.Report != nil {
				state.Item, state.Target.StartedAt = *d.Report, shift(d.Report.StartedAt, -offset)
				r.announce(state.Target, in.Item, *d.Report)
			}
			r.states.set(q.Key, state)
			return r.wakeAt(shift(d.WakeAt, -offset)), nil
		case apierrors.IsInvalid(err) && r.ServerClock.Offset() != offset:
			log.FromContext(ctx).Info("This machine's clock is off, reporting by that of the API server", "offset", r.ServerClock.Offset())
			continue
		case apierrors.IsInvalid(err) && !answer.ExpectedFinishTime.IsZero():
			// A time just ahead may be past by the server's clock. The rest of the
			// report must not fail with it.
			log.FromContext(ctx).V(1).Info("Reporting without the expected finish time", "reason", err.Error())
			answer.ExpectedFinishTime = time.Time{}
			continue
		case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
			r.emit(state.Target, events.ReportRefused(r.Name, err))
			r.reportRefusal(ctx, q, in.Item, err)
			return reconcile.Result{}, fmt.Errorf("report on %s %s: %w", r.api.kind().Kind, name, err)
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return reconcile.Result{}, fmt.Errorf("report on %s %s: %w", r.api.kind().Kind, name, err)
		}
		fresh, err := r.api.get(ctx, r.live, name)
		if err != nil {
			return reconcile.Result{}, err
		}
		if fresh == nil || fresh.Target.RequestUID != q.Target.RequestUID || fresh.Turn != active {
			break // The cache will show it in a moment.
		}
		q = fresh
	}
	return reconcile.Result{RequeueAfter: conflictRetry}, nil
}

// refusedReport begins the message of an interceptor whose reports are refused.
const refusedReport = "Reports of this interceptor are refused: "

// reportRefusal reports once in the request itself that a report was refused: with the
// message only and the stored times, because the times may be wrong. If even that is
// refused, there is only the event.
func (r *reconciler) reportRefusal(ctx context.Context, q *request, stored item, refusal error) {
	if !apierrors.IsInvalid(refusal) || strings.HasPrefix(stored.Message, refusedReport) {
		return
	}
	stored.Message = cutMessage(refusedReport + refusal.Error())
	if err := r.api.write(ctx, r.reports, r.FieldOwner, q, stored); err != nil {
		log.FromContext(ctx).V(1).Info("The request cannot tell that reports are refused", "reason", err.Error())
	}
}

// announce records the changes of a report as events.
func (r *reconciler) announce(t Target, before, after item) {
	if before.StartedAt.IsZero() && !after.StartedAt.IsZero() {
		r.emit(t, events.EvacuationStarted(r.Name, t.Pod.Name, after.Message))
	}
	if !after.CompletedAt.IsZero() {
		r.emit(t, events.EvacuationCompleted(r.Name, t.Pod.Name, after.Message))
	}
}

// evacuate calls Evacuate, with a deadline, and recovers from panics. Work that goes on
// although the turn is over has the target's deadline behind it.
func (r *reconciler) evacuate(ctx context.Context, t Target) (answer Progress, err error) {
	timeout := r.Timeout
	if left := t.Deadline.Sub(r.Clock.Now()); left > 0 {
		timeout = min(timeout, left)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer catch(ctx, &err)
	return r.impl.Evacuate(ctx, t)
}

// cancel calls Cancel, with a deadline, and recovers from panics.
func (r *reconciler) cancel(ctx context.Context, t Target) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	defer catch(ctx, &err)
	return r.canceler.Cancel(ctx, t)
}

// gone calls Gone, with a deadline, and recovers from panics.
func (r *reconciler) gone(ctx context.Context, t Target) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	defer catch(ctx, &err)
	return r.goner.Gone(ctx, t)
}

// catch turns a panic into an error.
func catch(ctx context.Context, err *error) {
	if what := recover(); what != nil {
		log.FromContext(ctx).Info("The interceptor panicked", "panic", fmt.Sprint(what), "stack", string(debug.Stack()))
		*err = fmt.Errorf("%w: %v", errPanic, what)
	}
}
