package hook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

// beginWait evaluates the condition. It is asked again when the pod or the workload
// changes.
func (a *hookInterceptor) beginWait(ctx context.Context, t *attempt, r *waitRecipe) (work, error) {
	if t.changed {
		return work{State: stateLost}, nil
	}
	// Before the pod is read, so that no change is missed.
	a.follows.add(string(t.target.PodUID))
	pod, err := a.podOf(ctx, t.target)
	if err != nil {
		return work{}, err
	}
	if pod == nil {
		return work{State: stateRunning, Message: "the pod has ended"}, nil
	}
	if t.object, err = podcache.Object(pod); err != nil {
		return work{}, fmt.Errorf("convert pod %s: %w", t.target.Pod, err)
	}
	vars := t.vars()
	about := "the condition is not true yet"
	if r.workload != nil {
		ref, err := r.ref(ctx, pod, vars)
		if err != nil {
			return work{State: stateRunning, Message: oneLine(err), CheckAfter: troubleRetry}, nil
		}
		request := podKey(t.target)
		object, err := a.watches.Get(ctx, ref, t.key(), func() { a.wake(request) })
		if err != nil {
			return work{State: stateRunning, Message: oneLine(err), CheckAfter: troubleRetry}, nil
		}
		vars[varWorkload] = nil
		if object != nil {
			vars[varWorkload] = object
		}
		about = fmt.Sprintf("the condition on %s %s is not true yet", ref.Kind, ref.Name)
	}
	met, err := r.until.Bool(ctx, vars, false)
	switch {
	case err != nil:
		return work{State: stateRunning, Message: oneLine(err)}, nil
	case met:
		return work{State: stateDone, Message: "the condition is true"}, nil
	}
	return work{State: stateRunning, Message: about}, nil
}

// ref is the workload: by the expression, else the pod's owner of that kind.
func (r *waitRecipe) ref(ctx context.Context, pod *corev1.Pod, vars map[string]any) (waitfor.Ref, error) {
	ref := waitfor.Ref{APIVersion: r.workload.APIVersion, Kind: r.workload.Kind, Namespace: pod.Namespace}
	if r.name.Given() {
		name, err := r.name.Text(ctx, vars)
		if err != nil {
			return ref, err
		}
		if name == "" {
			return ref, fmt.Errorf("spec.wait.workload.name is empty for this pod")
		}
		ref.Name = name
		return ref, nil
	}
	want := schema.FromAPIVersionAndKind(r.workload.APIVersion, r.workload.Kind).GroupKind()
	for _, o := range pod.OwnerReferences {
		if schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind() == want {
			ref.Name = o.Name
			return ref, nil
		}
	}
	return ref, fmt.Errorf("the pod has no owner of kind %s: give spec.wait.workload.name", r.workload.Kind)
}
