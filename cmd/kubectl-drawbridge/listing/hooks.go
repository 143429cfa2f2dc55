package listing

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Hook is a hook in one line.
type Hook struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Action is job, exec, http or wait.
	Action   string `json:"action"`
	Priority int32  `json:"priority"`
	// Pods that it covers; nil if not known.
	Pods *int32 `json:"pods,omitempty"`
	// Running and Held count the pods for which it runs, and which it keeps because it
	// failed.
	Running   int    `json:"running"`
	Held      int    `json:"held"`
	OnFailure string `json:"onFailure"`
	Accepted  string `json:"accepted,omitempty"`
	LastRun   string `json:"lastRun,omitempty"`
	Guard     string `json:"guard"`
	Deadline  string `json:"deadline,omitempty"`
	Retries   *int32 `json:"retries,omitempty"`
	// Trouble is why it is not accepted, or which expression fails.
	Trouble string `json:"trouble,omitempty"`
}

// Hooks returns them sorted by namespace and name.
func Hooks(hooks []v1alpha1.EvacuationHook) []Hook {
	all := make([]Hook, 0, len(hooks))
	for i := range hooks {
		all = append(all, HookOf(&hooks[i]))
	}
	slices.SortFunc(all, func(a, b Hook) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all
}

// HookOf returns a hook in one line.
func HookOf(hook *v1alpha1.EvacuationHook) Hook {
	s := Hook{
		Namespace: hook.Namespace, Name: hook.Name, Action: Action(hook),
		Priority: ptr.Deref(hook.Spec.Priority, v1alpha1.DefaultInterceptorPriority), Pods: hook.Status.MatchingPods,
		OnFailure: string(cmp.Or(hook.Spec.OnFailure, v1alpha1.HookHold)),
		Guard:     string(cmp.Or(hook.Spec.Guard, v1alpha1.GuardWhileEvacuating)), Retries: hook.Spec.Retries,
	}
	if hook.Spec.Deadline != nil {
		s.Deadline = hook.Spec.Deadline.Duration.String()
	}
	for _, run := range hook.Status.Runs {
		switch run.Phase {
		case v1alpha1.HookRunning, v1alpha1.HookRefused, v1alpha1.HookRetrying, v1alpha1.HookUndoing:
			s.Running++
		case v1alpha1.HookHeld:
			s.Held++
		default:
		}
	}
	s.Accepted, s.Trouble = accepted(hook.Status.Conditions)
	if last := meta.FindStatusCondition(hook.Status.Conditions, v1alpha1.ConditionLastRun); last != nil {
		s.LastRun = last.Reason
	}
	return s
}

// Action names what a hook does: job, exec, http or wait.
func Action(hook *v1alpha1.EvacuationHook) string {
	switch {
	case hook.Spec.Job != nil:
		return "job"
	case hook.Spec.Exec != nil:
		return "exec"
	case hook.Spec.HTTP != nil:
		return "http"
	case hook.Spec.Wait != nil:
		return "wait"
	}
	return "" // The schema refuses it.
}
