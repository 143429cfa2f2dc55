package vm

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// Cancel takes the mark back and stops what we started.
func (a *actor) Cancel(ctx context.Context, t interceptor.Target) error {
	defer a.stuck.remove(t.RequestUID)
	defer a.ends.forget(t.Request)
	pod, err := a.findPod(ctx, t)
	if err != nil || pod == nil {
		return err
	}
	p, err := a.policyUnder(ctx, a.name, pod)
	if errors.Is(err, errNotCovered) || (err == nil && p == nil) {
		return nil // Nobody knows any more what to take back.
	}
	if err != nil {
		return err
	}
	e := &evacuation{actor: a, policy: p, pod: pod, target: t}
	// No migration is created between the two.
	a.migrating.Lock()
	defer a.migrating.Unlock()
	sub, err := e.unmark(ctx)
	if err != nil || sub == nil {
		return err
	}
	return e.stopMigrations(ctx, sub)
}

// unmark takes the mark back, if it is still there. It returns nil if there is no
// workload any more.
func (e *evacuation) unmark(ctx context.Context) (*subject, error) {
	var last error
	for range tries {
		sub, f, _, err := e.look(ctx, e.policy, e.pod, e.turn(), true)
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
			return nil, last
		}
	}
	return nil, last
}

func (e *evacuation) unmarkOnce(ctx context.Context, sub *subject) error {
	if e.policy.unmark == nil {
		return nil
	}
	wrote, err := e.write(ctx, sub, e.policy.unmark)
	if err != nil {
		return fmt.Errorf("unmark %s: %w", e.describe(sub.pod.Namespace, sub.name), err)
	}
	if wrote {
		e.metrics.Wrote(e.policy.name, "unmark")
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
		if err := e.kinds.remove(ctx, e.policy.needs[m.kind], types.NamespacedName{Namespace: facts.Namespace, Name: facts.Name}, facts.UID); err != nil {
			return err
		}
		e.metrics.Wrote(e.policy.name, "delete_migration")
	}
	return nil
}

// changed reports whether a write failed because the object is not what it was:
// gone, or a test operation failed. The API server answers 422 to that.
func changed(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) ||
		(errors.As(err, &status) && status.Status().Code == 422)
}
