package hook

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// Retry is a run that somebody lets try again at once: one that is held begins anew, and
// one whose Job is refused need not wait. Not ok if there is nothing to try again.
func Retry(run v1alpha1.HookRun, who string, now time.Time) (retried v1alpha1.HookRun, ok bool) {
	switch run.Phase {
	case v1alpha1.HookHeld:
		run.Phase, run.FirstAttempt = v1alpha1.HookRetrying, run.Attempt+1
	case v1alpha1.HookRefused:
	default:
		return run, false
	}
	run.StartTime = stamp(now)
	run.Message = text.OneLine(who+" lets it try again: "+run.Message, maxFailure)
	return run, true
}

// isRetry reports whether somebody has made a run of ours into that of Retry. We never
// write one of these after the other ourselves.
func isRetry(ours, now v1alpha1.HookRun) bool {
	if ours.RequestUID != now.RequestUID || ours.Attempt != now.Attempt {
		return false
	}
	return ours.Phase == v1alpha1.HookHeld && now.Phase == v1alpha1.HookRetrying ||
		ours.Phase == v1alpha1.HookRefused && now.Phase == v1alpha1.HookRefused && now.StartTime.Before(&ours.StartTime)
}

// isRetried reports whether somebody lets a run of the hook try again. It looks at memory
// only: it is asked for every change of a hook's status, and nearly all are ours.
func (r *runner) isRetried(hook *v1alpha1.EvacuationHook) bool {
	key := client.ObjectKeyFromObject(hook)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range hook.Status.Runs {
		request := types.NamespacedName{Namespace: key.Namespace, Name: run.Request}
		if ours, ok := r.begun[request][key]; ok && isRetry(ours, run) {
			return true
		}
	}
	return false
}
