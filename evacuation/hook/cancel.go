package hook

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// Cancel stops what was begun and, if the eviction was canceled, undoes it.
func (n *named) Cancel(ctx context.Context, t interceptor.Target) error {
	ctx = about(ctx, t)
	skipped, err := n.goesOn(ctx, t)
	if err != nil {
		return err
	}
	return n.callOff(ctx, t, skipped)
}

// goesOn reports whether the request of a target still wants the eviction: then only the
// turn of the hook is over.
func (a *hookInterceptor) goesOn(ctx context.Context, t interceptor.Target) (bool, error) {
	if t.Native {
		evictions, err := a.evictionsOf(ctx, podKey(t))
		return wanted(evictionOf(evictions, t.RequestUID)), err
	}
	er := &v1alpha1.EvictionRequest{}
	switch err := a.client.Get(ctx, t.Request, er); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get eviction request %s: %w", t.Request, err)
	}
	// Without requesters it is about to be canceled.
	return er.UID == t.RequestUID && er.DeletionTimestamp.IsZero() && !v1alpha1.IsUnwanted(er) && !meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled), nil
}

// callOff stops the work for one pod, and undoes it unless it was only skipped. It is
// called again until it returns nil.
func (n *named) callOff(ctx context.Context, t interceptor.Target, skipped bool) error {
	hook, err := n.find(ctx, n.hook)
	switch {
	case err != nil:
		return err
	case hook == nil:
		return n.abandon(ctx, t)
	}
	run, err := n.runs.of(ctx, hook, t.RequestUID)
	if err != nil {
		return err
	}
	if run == nil {
		n.limiter.release(t.RequestUID)
		return nil // Nothing was begun.
	}
	p := n.compiled.get(hook)
	// An attempt whose Job was refused has not begun.
	nothing := run.Phase == v1alpha1.HookRefused && run.Attempt == 1
	if p.noReturn && !skipped && !nothing && (run.Phase == v1alpha1.HookRunning || waits(run.Phase)) {
		return interceptor.ErrPointOfNoReturn
	}
	did := &attempt{compiled: p, target: t, run: *run}
	if run.Phase == v1alpha1.HookRunning && !p.noReturn {
		gone, err := n.stop(ctx, p.do, did)
		switch {
		case err != nil:
			return err
		case !gone:
			return fmt.Errorf("%w: Job %s is being deleted", interceptor.ErrNotYet, did.jobName())
		}
	}
	n.forget(did)
	if skipped || nothing || p.undo == nil || p.noReturn || run.Phase == v1alpha1.HookUndone {
		n.limiter.release(t.RequestUID)
		n.runs.drop(n.hook, t.RequestUID)
		return nil
	}
	return n.undo(ctx, did)
}

// undo does once what the hook says for an eviction that was canceled.
func (n *named) undo(ctx context.Context, did *attempt) error {
	p, target, run := did.compiled, did.target, did.run
	if run.Phase != v1alpha1.HookUndoing {
		run.Phase, run.StartTime, run.Message = v1alpha1.HookUndoing, stamp(n.clock.Now()), ""
		run.RequestUID = string(target.RequestUID)
		if err := n.runs.update(ctx, p.hook, func(status *v1alpha1.EvacuationHookStatus) error { return put(status, run) }); err != nil {
			return err
		}
		n.fresh.add((&attempt{compiled: p, target: target, run: run, undo: true}).key())
	}
	n.limiter.hold(target.RequestUID, target.Pod.Namespace)
	t := &attempt{compiled: p, target: target, run: run, undo: true}
	w, err := n.begin(ctx, p.undo, t)
	if err != nil {
		return err
	}
	result := resultUndone
	switch {
	case w.State == stateDone:
	case w.State == stateFailed:
		result = resultUndoFailed
	case w.State == stateLost:
		// It may have been done, and is done once.
		result, w.Message = resultUndoFailed, "the manager restarted while it ran, and it is not repeated"
	case w.State == stateRefused:
		return n.undoRefused(ctx, did, run, w)
	case t.late:
		if _, err := n.stop(ctx, p.undo, t); err != nil {
			return err
		}
		result, w.Message = resultUndoFailed, fmt.Sprintf("it took longer than %s: %s", p.rules.Deadline, w.Message)
	default:
		return fmt.Errorf("%w: the undo of hook %s runs: %s", interceptor.ErrNotYet, p.hook.Name, w.Message)
	}
	run.Phase, run.Message = v1alpha1.HookUndone, text.OneLine(w.Message, maxFailure)
	if err := n.runs.update(ctx, p.hook, func(status *v1alpha1.EvacuationHookStatus) error { return put(status, run) }); err != nil {
		return err
	}
	n.limiter.release(target.RequestUID)
	n.forget(t)
	n.runs.drop(n.hook, target.RequestUID)
	n.metrics.Ended(p.undo.name(), result)
	if result == resultUndone {
		n.emit(target, events.HookUndone(p.hook.Name, target.Pod.Name))
	} else {
		n.emit(target, events.HookUndoFailed(p.hook.Name, target.Pod.Name, run.Message))
	}
	return nil
}

// undoRefused waits for as long as the Job of the undo is refused. Its deadline counts
// from when it can begin.
func (n *named) undoRefused(ctx context.Context, did *attempt, run v1alpha1.HookRun, w work) error {
	if now := n.clock.Now(); now.Sub(run.StartTime.Time) > did.compiled.rules.Deadline/2 {
		run.StartTime = stamp(now)
		if err := n.runs.update(ctx, did.compiled.hook, func(status *v1alpha1.EvacuationHookStatus) error { return put(status, run) }); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the undo of hook %s waits: %s", interceptor.ErrNotYet, did.compiled.hook.Name, w.Message)
}

// Gone stops what still runs for a pod that has ended during the turn.
func (n *named) Gone(ctx context.Context, t interceptor.Target) error {
	hook, err := n.find(ctx, n.hook)
	switch {
	case err != nil:
		return err
	case hook == nil:
		return n.abandon(ctx, t)
	}
	run, err := n.runs.of(ctx, hook, t.RequestUID)
	if err != nil {
		return err
	}
	if run != nil {
		did := &attempt{compiled: n.compiled.get(hook), target: t, run: *run}
		if run.Phase == v1alpha1.HookRunning {
			if _, err := n.stop(ctx, did.compiled.do, did); err != nil {
				return err
			}
		}
		n.forget(did)
		n.runs.drop(n.hook, t.RequestUID)
	}
	n.limiter.release(t.RequestUID)
	return nil
}

// abandon stops what a hook that was deleted has begun: its record is gone with it.
func (n *named) abandon(ctx context.Context, t interceptor.Target) error {
	n.limiter.release(t.RequestUID)
	var jobs batchv1.JobList
	if err := n.client.List(ctx, &jobs, client.InNamespace(t.Pod.Namespace), client.MatchingLabels{
		v1alpha1.HookRequestLabel: string(t.RequestUID), v1alpha1.HookLabel: n.hook.Name,
	}); err != nil {
		return fmt.Errorf("list the Jobs of hook %s: %w", n.hook, err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if !job.DeletionTimestamp.IsZero() || ended(job) {
			continue
		}
		err := n.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Job %s: %w", job.Name, err)
		}
	}
	return nil
}

func ended(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if c.Status == "True" && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return true
		}
	}
	return false
}
