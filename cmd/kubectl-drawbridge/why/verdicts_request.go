package why

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func requestHeld(c *podCase) (string, []string, bool) {
	er := c.Request
	if er == nil || c.state != v1alpha1.StateDeleting {
		return "", nil, false
	}
	if len(er.Finalizers) == 0 {
		return "The request is being deleted; it is gone in a moment.", []string{"Nothing: wait."}, true
	}
	return fmt.Sprintf("The request was deleted %s, and finalizers hold it: %s. Nobody acts on it any more, and no other one can begin until it is gone.",
			c.ago(er.DeletionTimestamp.Time), strings.Join(er.Finalizers, ", ")),
		[]string{
			"Find out why the owner of the finalizer does not remove it.",
			fmt.Sprintf(`If you know what is left undone then, take it off: kubectl -n %s patch evictionrequest %s --type=merge -p '{"metadata":{"finalizers":null}}'`, er.Namespace, er.Name),
		}, true
}

func refused(c *podCase) (string, []string, bool) {
	condition := c.canceledBecause()
	if condition == nil || condition.Reason != v1alpha1.ReasonValidationFailed {
		return "", nil, false
	}
	return "The request was refused: " + sentence(condition.Message),
		[]string{"Evict the pod through whatever manages it. A request for this pod will be refused again."}, true
}

func canceled(c *podCase) (string, []string, bool) {
	condition := c.canceledBecause()
	if condition == nil {
		return "", nil, false
	}
	advice := "Nothing, if the pod should stay. Otherwise drain its node again: the next call starts a new eviction."
	if _, ok := c.foretold(); !ok {
		advice = "Nothing, if the pod should stay. Note that the next eviction call does not start a new one: see below how it would be answered."
	}
	return fmt.Sprintf("The eviction was canceled %s: it has no requester left.", c.ago(condition.LastTransitionTime.Time)), []string{advice}, true
}

func notPlanned(c *podCase) (string, []string, bool) {
	if c.Request == nil || c.state != v1alpha1.StatePending {
		return "", nil, false
	}
	age := c.Now.Sub(c.Request.CreationTimestamp.Time)
	if age < time.Minute {
		return "The eviction is requested; Drawbridge will process it in a moment.", []string{"Nothing: wait."}, true
	}
	return fmt.Sprintf("The eviction was requested %s, and no manager has processed it.", c.ago(c.Request.CreationTimestamp.Time)),
		[]string{fmt.Sprintf("See whether Drawbridge runs and has a leader: kubectl -n %s get pods,leases", c.System)}, true
}

// intercepting is the active interceptor, unless it is the last one.
func (c *podCase) intercepting() *Interceptor {
	if c.Request == nil || c.active == nil || c.active.Name == v1alpha1.ImperativeEvictionInterceptor {
		return nil
	}
	return c.active
}

// turn says whose turn it is: "a.example.com (1 of 3)".
func (c *podCase) turn() string {
	return fmt.Sprintf("%s (%d of %d)", c.active.Name, c.position, len(c.interceptors))
}

func (c *podCase) skipCommand() string {
	return fmt.Sprintf("If you know that it has nothing to do, continue without it: kubectl drawbridge skip %s %s -n %s --reason=WHY", c.Pod.Name, c.active.Name, c.Pod.Namespace)
}

func silentOne(c *podCase) (string, []string, bool) {
	i := c.intercepting()
	if i == nil || c.waitsForEvictionBudget() && c.BudgetsOff {
		return "", nil, false
	}
	who := "whoever acts for " + i.Name
	if len(i.ServiceAccounts) > 0 {
		who = "the program that runs as " + strings.Join(i.ServiceAccounts, " or ")
	}
	if _, ok := v1alpha1.HookOf(i.Name); ok {
		who = "Drawbridge, which runs the hooks,"
	}
	if i.Name == v1alpha1.BudgetInterceptor {
		who = "Drawbridge, which decides about EvictionBudgets,"
	}
	after, worth := "20 minutes of silence (--heartbeat-deadline)", silence
	if i.Name == v1alpha1.NativeInterceptor {
		who, worth = "Drawbridge, which asks the pod's native responders,", nativeSilence
	}
	if deadline := v1alpha1.HeartbeatDeadlineOf(c.Request, i.Name); deadline > 0 {
		// Who may be silent for long reports seldom.
		after, worth = duration.HumanDuration(deadline)+" of silence (its heartbeatDeadline)", max(silence, deadline/2)
	}
	advice := []string{
		fmt.Sprintf("See whether %s runs, and whether it may patch evictionrequests/status.", who),
		c.skipCommand(),
		"Or wait: after " + after + " Drawbridge passes it over.",
	}
	switch {
	case i.Heard == nil && i.Since != nil && c.Now.Sub(*i.Since) >= worth:
		return fmt.Sprintf("Interceptor %s got its turn %s and has never reported.", c.turn(), c.ago(*i.Since)), advice, true
	case i.Heard != nil && c.Now.Sub(*i.Heard) >= worth:
		return fmt.Sprintf("Interceptor %s last reported %s.", c.turn(), c.ago(*i.Heard)), advice, true
	}
	return "", nil, false
}

func late(c *podCase) (string, []string, bool) {
	i := c.intercepting()
	if i == nil || i.Expected == nil || !c.Now.After(i.Expected.Add(time.Minute)) {
		return "", nil, false
	}
	return fmt.Sprintf("Interceptor %s is working, but expected to be done %s%s", c.turn(), c.ago(*i.Expected), saying(i.Message)),
		[]string{"Wait: it still reports. Look at what it says and at its log if that does not change.", c.skipCommand()}, true
}

func works(c *podCase) (string, []string, bool) {
	i := c.intercepting()
	if i == nil {
		return "", nil, false
	}
	headline := "Interceptor " + c.turn() + " has its turn"
	if i.Expected != nil {
		headline += " and expects to be done in " + duration.HumanDuration(max(0, i.Expected.Sub(c.Now)))
	}
	return headline + saying(i.Message), []string{"Nothing: wait.", c.cancelCommand()}, true
}

func (c *podCase) cancelCommand() string {
	return fmt.Sprintf("To cancel the eviction: kubectl drawbridge cancel pod/%s -n %s", c.Pod.Name, c.Pod.Namespace)
}
