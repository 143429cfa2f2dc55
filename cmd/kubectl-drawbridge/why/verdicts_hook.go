package why

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	writes "github.com/drawbridge-dev/drawbridge/internal/refused"
)

// The schema's defaults, for a hook that was stored without them.
const (
	defaultHookDeadline = 30 * time.Minute
	defaultHookRetries  = 2
)

// activeHook is the hook whose turn it is, and its run for the request, nil if it has
// not begun. ok is false if it is no hook's turn, or if the hook could not be read.
func (c *podCase) activeHook() (hook *v1alpha1.EvacuationHook, run *v1alpha1.HookRun, ok bool) {
	i := c.intercepting()
	if i == nil {
		return nil, nil, false
	}
	key, ok := v1alpha1.HookOf(i.Name)
	if !ok {
		return nil, nil, false
	}
	for n := range c.Hooks {
		if h := &c.Hooks[n]; h.Namespace == key.Namespace && h.Name == key.Name {
			hook = h
		}
	}
	if hook == nil {
		return nil, nil, false
	}
	for n := range hook.Status.Runs {
		if r := &hook.Status.Runs[n]; r.RequestUID == string(c.Request.UID) {
			run = r
		}
	}
	return hook, run, true
}

// hookJob is the name of the Job of the run's attempt; empty if the hook runs none.
func (c *podCase) hookJob(hook *v1alpha1.EvacuationHook, run *v1alpha1.HookRun) string {
	if hook.Spec.Job == nil {
		return ""
	}
	return v1alpha1.HookJobName(hook.Name, c.Request.UID, run.Attempt)
}

// attempt says which attempt it is: "attempt 2 of 3". Those of an older generation of the
// hook do not count.
func attempt(hook *v1alpha1.EvacuationHook, run *v1alpha1.HookRun) string {
	n := run.Attempt - run.FirstAttempt + 1
	return fmt.Sprintf("attempt %d of %d", n, max(n, ptr.Deref(hook.Spec.Retries, defaultHookRetries)+1))
}

func logs(namespace, job string) string {
	return fmt.Sprintf("To see what the Job says: kubectl logs -n %s job/%s", namespace, job)
}

func heldByHook(c *podCase) (string, []string, bool) {
	hook, run, ok := c.activeHook()
	if !ok || run == nil || run.Phase != v1alpha1.HookHeld {
		return "", nil, false
	}
	which := attempt(hook, run)
	var advice []string
	if job := c.hookJob(hook, run); job != "" {
		which += ", Job " + job
		advice = append(advice, logs(hook.Namespace, job))
	}
	return fmt.Sprintf("Hook %s (%d of %d) keeps the pod, because its last attempt failed (%s)%s", hook.Name, c.position, len(c.interceptors), which, saying(run.Message)),
		append(advice,
			fmt.Sprintf("If the cause is gone, let it try again: kubectl drawbridge hooks retry %s %s -n %s", hook.Name, c.Pod.Name, hook.Namespace),
			fmt.Sprintf("Change the hook, and it tries again: kubectl edit evacuationhook %s -n %s", hook.Name, hook.Namespace),
			c.skipCommand(),
		), true
}

func waitsForHook(c *podCase) (string, []string, bool) {
	hook, run, ok := c.activeHook()
	if !ok {
		return "", nil, false
	}
	turn := fmt.Sprintf("Hook %s (%d of %d)", hook.Name, c.position, len(c.interceptors))
	advice := []string{"Nothing: wait.", c.cancelCommand()}
	if run == nil {
		return turn + " has its turn and has not begun" + saying(c.active.Message), advice, true
	}
	job := c.hookJob(hook, run)
	switch run.Phase {
	case v1alpha1.HookRunning:
		if job != "" {
			advice = append(advice, logs(hook.Namespace, job))
		}
		return fmt.Sprintf("%s %s: %s, begun %s, %s%s", turn, doing(hook, job), attempt(hook, run),
			c.ago(run.StartTime.Time), c.timeLeft(hook, run), saying(c.active.Message)), advice, true
	case v1alpha1.HookRetrying:
		if job != "" {
			advice = append(advice, logs(hook.Namespace, job))
		}
		return fmt.Sprintf("%s will try again: %s has failed%s", turn, attempt(hook, run), saying(run.Message)), advice, true
	case v1alpha1.HookRefused:
		return turn + " waits and continues by itself" + saying(run.Message), append(c.jobRemedy(), "Nothing else: it is tried again, at least every five minutes.",
			fmt.Sprintf("To try it now: kubectl drawbridge hooks retry %s %s -n %s", hook.Name, c.Pod.Name, hook.Namespace), c.cancelCommand()), true
	default: // It is about to be done.
		return "", nil, false
	}
}

// jobRemedy says what to change so that the hook's Job is accepted, if an event tells what
// refuses it.
func (c *podCase) jobRemedy() []string {
	for _, r := range c.refusals {
		if r.Write == writes.Job {
			return []string{r.Remedy(c.Pod.Namespace)}
		}
	}
	return nil
}

// doing says what a hook does.
func doing(hook *v1alpha1.EvacuationHook, job string) string {
	switch {
	case job != "":
		return "runs Job " + job
	case hook.Spec.Exec != nil:
		return "runs a command in the pod"
	case hook.Spec.HTTP != nil:
		return "sends its request"
	default:
		return "waits for its condition"
	}
}

// timeLeft says when the attempt ends at the latest. The administrator's limit for all
// attempts may end it earlier.
func (c *podCase) timeLeft(hook *v1alpha1.EvacuationHook, run *v1alpha1.HookRun) string {
	deadline := defaultHookDeadline
	if hook.Spec.Deadline != nil {
		deadline = hook.Spec.Deadline.Duration
	}
	left := run.StartTime.Add(deadline).Sub(c.Now)
	if left <= 0 {
		return "and its deadline has passed"
	}
	text := "and it fails after " + duration.HumanDuration(left) + " more"
	if c.active.Expected != nil && c.active.Expected.After(c.Now) {
		text += ", but expects to be done in " + duration.HumanDuration(c.active.Expected.Sub(c.Now))
	}
	return text
}
