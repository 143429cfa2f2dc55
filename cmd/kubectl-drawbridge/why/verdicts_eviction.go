package why

import (
	"fmt"
	"strings"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// lastStage reports whether the imperative evictor is active.
func (c *podCase) lastStage() bool {
	return c.Request != nil && c.active != nil && c.active.Name == v1alpha1.ImperativeEvictionInterceptor
}

func guardHolds(c *podCase) (string, []string, bool) {
	_, guard := c.refusing()
	if !guard || !c.lastStage() {
		return "", nil, false
	}
	if why := c.lastNote("GuardHeld"); why != "" {
		return "All interceptors are done, and Drawbridge's guard keeps the pod. " + why, []string{
			"Repair what it names, or withdraw the eviction.", c.cancelCommand(),
		}, true
	}
	return "All interceptors are done, and Drawbridge's guard keeps the pod.",
		[]string{
			fmt.Sprintf("The guard opens in a moment; if it does not, look at the log of Drawbridge's leader: kubectl -n %s logs deployment/drawbridge", c.System),
		}, true
}

// lastNote is the note of the last event with that reason, empty if there is none.
func (c *podCase) lastNote(reason string) string {
	var last *eventsv1.Event
	for i := range c.Events {
		event := &c.Events[i]
		if event.Reason == reason && (last == nil || eventTime(event).After(eventTime(last))) {
			last = event
		}
	}
	if last == nil {
		return ""
	}
	return text.Clean(last.Note)
}

func severalBudgets(c *podCase) (string, []string, bool) {
	if len(c.budgets) < 2 || c.Request == nil && c.intercepted() {
		return "", nil, false
	}
	return fmt.Sprintf("%d budgets select the pod (%s). The eviction API supports one, and refuses every call.", len(c.budgets), c.budgetNames()),
		[]string{"Change a selector so that only one budget selects the pod."}, true
}

func (c *podCase) budgetNames() string {
	var names []string
	for _, b := range c.budgets {
		names = append(names, b.Name)
	}
	return strings.Join(names, ", ")
}

// relax is the advice about a budget that refuses now.
func (c *podCase) relax(names []string, then string) []string {
	return c.orSurge(fmt.Sprintf("If pods are unhealthy, repair or scale up the application; if the budget allows nothing at all, relax it: kubectl -n %s edit poddisruptionbudget %s. %s", c.Pod.Namespace, names[0], then))
}

// relaxNever is the advice about a budget that can never allow the eviction.
func (c *podCase) relaxNever(name, then string) []string {
	return c.orSurge(fmt.Sprintf("Waiting does not help. Relax the budget, or run more replicas than it needs: kubectl -n %s edit poddisruptionbudget %s. %s", c.Pod.Namespace, name, then))
}

// orSurge adds that a Deployment's pods can have replacements first.
func (c *podCase) orSurge(advice ...string) []string {
	if owner := controller(c.Pod); strings.HasPrefix(owner, "ReplicaSet/") && !c.intercepted() {
		advice = append(advice, "For a Deployment, opt in to replacements first: surge.drawbridge.dev makes room without an edit of the budget.")
	}
	return advice
}

func evictionNever(c *podCase) (string, []string, bool) {
	name, says := c.never()
	if !c.lastStage() || says == "" {
		return "", nil, false
	}
	if at := c.active.Expected; at != nil {
		return fmt.Sprintf("All interceptors are done; %s. An EvictionBudget has the pod deleted in spite of it.", says),
			[]string{fmt.Sprintf("Wait until %s.", c.in(*at)), c.cancelCommand()}, true
	}
	advice := c.relaxNever(name, "The pod is evicted at once when it allows.")
	if !strings.HasPrefix(controller(c.Pod), "ReplicaSet/") {
		advice = append(advice, "Or let an EvictionBudget of the pod have it deleted in spite of the budget: spec.exhausted (docs/guides/budgets.md).")
	}
	return "All interceptors are done; " + says + ".", advice, true
}

func evictionBlocked(c *podCase) (string, []string, bool) {
	names, _ := c.refusing()
	if !c.lastStage() || len(names) == 0 {
		return "", nil, false
	}
	return fmt.Sprintf("All interceptors are done; budget %s refuses the eviction%s.", strings.Join(names, ", "), retries(c.active)),
		c.relax(names, "The pod is evicted at once when it allows."), true
}

func retries(i *Interceptor) string {
	if i.Retries == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d tries so far)", i.Retries)
}

func evictionFails(c *podCase) (string, []string, bool) {
	if !c.lastStage() || c.active.Retries == 0 {
		return "", nil, false
	}
	return fmt.Sprintf("All interceptors are done; the eviction failed %d times, and no budget is in the way now.", c.active.Retries),
		[]string{"The last Warning in the history names the cause. Drawbridge tries again with growing pauses of up to 15 minutes."}, true
}

func evicting(c *podCase) (string, []string, bool) {
	return "All interceptors are done; the pod is evicted in a moment.", []string{"Nothing: wait."}, c.lastStage()
}
