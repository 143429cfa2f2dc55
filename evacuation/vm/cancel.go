package vm

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// Cancel removes the mark and stops what we started.
func (a *policyInterceptor) Cancel(ctx context.Context, t interceptor.Target) error {
	defer a.stuck.remove(t.RequestUID)
	defer a.unheard.remove(t.RequestUID)
	defer a.ends.forget(t.Request)
	ctx = about(ctx, t)
	pod, err := a.findPod(ctx, t)
	if err != nil || pod == nil {
		return err
	}
	p, err := a.policyUnder(ctx, a.name, pod)
	if errors.Is(err, errNotCovered) {
		return nil // What to undo is no longer known.
	}
	if err != nil {
		return err
	}
	e := &evacuation{policyInterceptor: a, policy: p, pod: pod, target: t}
	// No migration is created between the two.
	a.migrating.Lock()
	defer a.migrating.Unlock()
	sub, err := e.unmark(ctx)
	switch {
	case errors.Is(err, errKept):
		return nil // The platform would restart whatever is stopped.
	case sub == nil:
		return err
	default:
		return errors.Join(err, e.stopMigrations(ctx, sub))
	}
}

// unmark removes the mark, if it is still there. It returns nil if the workload is
// gone. With an error it may return the workload, too.
func (e *evacuation) unmark(ctx context.Context) (*subject, error) {
	var last error
	for range tries {
		sub, f, _, err := e.observe(ctx, e.policy, e.pod, e.turn(), true)
		switch {
		case err != nil:
			return nil, err
		case !f.Exists:
			return nil, nil
		case !f.Evacuating:
			return sub, nil
		}
		if last = e.unmarkOnce(ctx, sub); last == nil {
			return sub, nil
		}
		if !changed(last) {
			e.lost(sub, last)
			return sub, last
		}
	}
	return nil, last
}

// unmarkOnce removes both marks: the platform's, by its own means, and ours. If one of
// them stays, the other is still removed.
func (e *evacuation) unmarkOnce(ctx context.Context, sub *subject) error {
	asked, askErr := e.askToUnmark(ctx, sub)
	wrote := false
	var writeErr error
	if e.policy.unmark != nil {
		wrote, writeErr = e.write(ctx, sub, e.policy.unmark, writeUnmark)
	}
	if err := errors.Join(askErr, writeErr); err != nil {
		return fmt.Errorf("unmark %s: %w", e.describe(sub.pod.Namespace, sub.name), err)
	}
	if wrote || asked {
		e.metrics.Wrote(e.policy.name, writeUnmark)
		e.emit(events.WorkloadUnmarked(e.policy.kindName(), sub.name, e.policy.name))
	}
	return nil
}

// stopMigrations deletes the unfinished migrations that were made to evacuate the
// workload.
func (e *evacuation) stopMigrations(ctx context.Context, sub *subject) error {
	m := e.policy.migration
	if m == nil || !m.deleteOnCancel {
		return nil
	}
	begun := false
	objects, err := e.kinds.liveList(ctx, e.policy.needs[m.kind], sub.pod.Namespace)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		facts, err := m.factsOf(ctx, object)
		if err != nil {
			return err
		}
		if facts.Workload != sub.name || facts.Finished || !facts.Ours {
			continue
		}
		if !begun {
			if err := e.writes.begin(e.writeKey(sub, writeDelete)); err != nil {
				return err
			}
			begun = true
		}
		if err := e.kinds.remove(ctx, e.policy.needs[m.kind], types.NamespacedName{Namespace: facts.Namespace, Name: facts.Name}, facts.UID); err != nil {
			return err
		}
		e.metrics.Wrote(e.policy.name, writeDelete)
	}
	return nil
}

// changed reports whether a write failed because the object has changed: it is gone, or
// a test operation failed. The API server answers 422 to that.
func changed(err error) bool {
	return refused.Changed(err)
}
