package why

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// note returns what else is worth knowing about a pod, if anything. Add new ones to
// notes.
type note func(c *podCase) []string

// notes in the order of the output.
var notes = []note{
	unreadFacts,
	missingInterceptors,
	refusedWrites,
	badAnnotation,
	refusedRegistrations,
	passedBy,
	openGuard,
	deadline,
	silentResponder,
	taintEviction,
	maintenances,
	preemptions,
	deadNode,
}

func unreadFacts(c *podCase) []string {
	var told []string
	for _, what := range c.Unread {
		told = append(told, "Not read, so this may be incomplete: "+what)
	}
	return told
}

func missingInterceptors(c *podCase) []string {
	if c.unsure == nil {
		return nil
	}
	return []string{"There may be more interceptors: " + c.unsure.Error() + "."}
}

func badAnnotation(c *podCase) []string {
	if c.Pod == nil {
		return nil
	}
	_, problems := translate.ParseInterceptors(c.Pod.Annotations[v1alpha1.InterceptorsAnnotation], reservedIn(c.Facts)...)
	if len(problems) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The annotation %s cannot be read in full: %s. What can be read counts.", v1alpha1.InterceptorsAnnotation, strings.Join(problems, "; "))}
}

func refusedRegistrations(c *podCase) []string {
	var told []string
	for _, r := range c.Registrations {
		if condition := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAccepted); condition != nil && condition.Status == "False" {
			told = append(told, fmt.Sprintf("EvictionInterceptor %s is not in force (%s): %s", r.Name, condition.Reason, sentence(condition.Message)))
		}
	}
	return told
}

// openGuard reports a guard that is closed while the interceptors work.
func openGuard(c *podCase) []string {
	if _, guard := c.refusing(); !guard || c.lastStage() {
		return nil
	}
	return []string{"The guard is closed: budget " + v1alpha1.GuardBudgetName + " protects the pod while Drawbridge is down, and opens when the interceptors are done."}
}

// deadline says how long the interceptors have, or that they had no longer.
func deadline(c *podCase) []string {
	if c.Request == nil {
		return nil
	}
	var told []string
	if short := meta.FindStatusCondition(c.Request.Status.Conditions, v1alpha1.ConditionShortNotice); short != nil {
		told = append(told, sentence(short.Message))
	}
	if cut := meta.FindStatusCondition(c.Request.Status.Conditions, v1alpha1.ConditionCutOff); cut != nil {
		return append(told, sentence(cut.Message))
	}
	if c.Request.Status.Deadline == nil || c.intercepting() == nil {
		return told
	}
	left := c.Request.Status.Deadline.Sub(c.Now)
	when := "from now"
	switch {
	case left < 0 && c.active.Name == v1alpha1.BudgetInterceptor:
		return append(told, fmt.Sprintf("The time of the interceptors is over, because of %s. EvictionBudgets still count.", c.Request.Status.DeadlineSource))
	case left < 0 && c.active.Name == v1alpha1.NativeInterceptor:
		return append(told, fmt.Sprintf("The time of the interceptors is over, because of %s. Native responders know no deadlines, and still have their turns.", c.Request.Status.DeadlineSource))
	case left < 0:
		left, when = -left, "ago, so it comes in a moment"
	}
	return append(told, fmt.Sprintf("The interceptors have until %s (%s %s), because of %s. Those that are not done then are cut off, and the pod is evicted as soon as its budgets allow that.",
		c.Request.Status.Deadline.In(c.Now.Location()).Format(time.RFC3339), duration.HumanDuration(left), when, c.Request.Status.DeadlineSource))
}

// taintEviction reports that the pod will be deleted, which nobody holds: no interceptor, and
// no budget.
func taintEviction(c *podCase) []string {
	if c.Request == nil || c.Pod == nil || c.Pod.DeletionTimestamp != nil {
		return nil
	}
	for _, r := range c.Request.Spec.Requesters {
		if r.Name == v1alpha1.TaintEvictionRequester && r.Deadline != nil {
			return []string{fmt.Sprintf("Kubernetes deletes the pod at %s because of a taint of its node. Drawbridge cannot hold that.", r.Deadline.In(c.Now.Location()).Format(time.RFC3339))}
		}
	}
	return nil
}

// maintenances reports the maintenances that evict the pod. A request outlives its pod
// for a while; then nothing is left to stop.
func maintenances(c *podCase) []string {
	if c.Request == nil || c.Pod == nil {
		return nil
	}
	var told []string
	for _, r := range c.Request.Spec.Requesters {
		if name, ok := strings.CutSuffix(r.Name, "."+v1alpha1.MaintenanceRequesterSuffix); ok {
			told = append(told, fmt.Sprintf("Requested by NodeMaintenance %s: as long as that drains, the pod's eviction is requested again. To stop it: kubectl drawbridge cancel node/%s", name, c.Pod.Spec.NodeName))
		}
	}
	return told
}

// deadNode says that the node is not ready, and, once it is lost, whom that has cost a turn
// and what is left to a person.
func deadNode(c *podCase) []string {
	if c.Request != nil && !v1alpha1.IsFinished(c.Request) {
		lost := meta.FindStatusCondition(c.Request.Status.Conditions, v1alpha1.ConditionNodeLost)
		if lost != nil && lost.Status == metav1.ConditionTrue {
			return []string{sentence(lost.Message) + " The pod's end is not confirmed until the node is back, or is deleted, or, if the machine is off, has the taint " + corev1.TaintNodeOutOfService + "."}
		}
	}
	if c.Node == nil || nodeReady(c.Node) || c.Pod == nil || c.Pod.DeletionTimestamp != nil {
		return nil
	}
	for _, condition := range c.Node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Message != "" {
			return []string{fmt.Sprintf("Node %s is not ready: %s", c.Node.Name, sentence(condition.Message))}
		}
	}
	return []string{fmt.Sprintf("Node %s is not ready.", c.Node.Name)}
}
