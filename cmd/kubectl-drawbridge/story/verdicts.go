package story

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
)

// Verdict is what is the matter, in one word.
type Verdict string

// The verdicts, in the order in which they are looked at.
const (
	VerdictGone              Verdict = "Gone"
	VerdictStuckTerminating  Verdict = "StuckTerminating"
	VerdictTerminating       Verdict = "Terminating"
	VerdictFinished          Verdict = "Finished"
	VerdictMirrorPod         Verdict = "MirrorPod"
	VerdictRequestHeld       Verdict = "RequestHeld"
	VerdictRefused           Verdict = "Refused"
	VerdictCanceled          Verdict = "Canceled"
	VerdictNotPlanned        Verdict = "NotPlanned"
	VerdictInterceptorSilent Verdict = "InterceptorSilent"
	VerdictInterceptorLate   Verdict = "InterceptorLate"
	VerdictInterceptorWorks  Verdict = "InterceptorWorks"
	VerdictGuardHolds        Verdict = "GuardHolds"
	VerdictSeveralBudgets    Verdict = "SeveralBudgets"
	VerdictEvictionBlocked   Verdict = "EvictionBlocked"
	VerdictEvictionFails     Verdict = "EvictionFails"
	VerdictEvicting          Verdict = "Evicting"
	VerdictNotScheduled      Verdict = "NotScheduled"
	VerdictWebhookNotAsked   Verdict = "WebhookNotAsked"
	VerdictWouldIntercept    Verdict = "WouldIntercept"
	VerdictKept              Verdict = "Kept"
	VerdictLeftToOwner       Verdict = "LeftToOwner"
	VerdictBudgetBlocks      Verdict = "BudgetBlocks"
	VerdictDaemonSet         Verdict = "DaemonSet"
	VerdictNothingBlocks     Verdict = "NothingBlocks"
)

// check says whether a verdict is the right one, as a sentence, with what to do.
type check func(c *podCase) (headline string, advice []string, ok bool)

// verdicts are looked at in this order; the first that holds is the verdict.
var verdicts = []struct {
	name  Verdict
	check check
}{
	{VerdictGone, gone},                         // There is nothing left to explain but the past.
	{VerdictStuckTerminating, stuckTerminating}, // It was evicted, and does not end.
	{VerdictTerminating, terminating},
	{VerdictFinished, over},
	{VerdictMirrorPod, mirror},                // The API server cannot evict it.
	{VerdictRequestHeld, requestHeld},         // Nobody acts on the request, and no other one can begin.
	{VerdictRefused, refused},                 // The request will never do anything.
	{VerdictCanceled, canceled},               // Nobody wants it at present.
	{VerdictNotPlanned, notPlanned},           // The controller has not looked at the request.
	{VerdictInterceptorSilent, silentOne},     // It is its turn, and it says nothing.
	{VerdictInterceptorLate, late},            // It speaks, but is not where it wanted to be.
	{VerdictInterceptorWorks, works},          // All is as it should be: wait.
	{VerdictGuardHolds, guardHolds},           // Everybody is done, and Drawbridge's own budget is closed.
	{VerdictSeveralBudgets, severalBudgets},   // No call can succeed, whatever the budgets allow.
	{VerdictEvictionBlocked, evictionBlocked}, // Everybody is done, and a budget refuses.
	{VerdictEvictionFails, evictionFails},     // Everybody is done, and something else refuses.
	{VerdictEvicting, evicting},
	// From here on there is no request.
	{VerdictNotScheduled, notScheduled},
	{VerdictWebhookNotAsked, webhookNotAsked}, // Interceptors, and a call that they never hear of.
	{VerdictWouldIntercept, wouldIntercept},
	{VerdictKept, kept},               // A maintenance leaves it where it is,
	{VerdictLeftToOwner, leftToOwner}, // or to its owner for a while.
	{VerdictBudgetBlocks, budgetBlocks},
	{VerdictDaemonSet, daemonSet},
	{VerdictNothingBlocks, nothingBlocks},
}

func (c *podCase) ago(t time.Time) string { return duration.HumanDuration(c.Now.Sub(t)) + " ago" }

func gone(c *podCase) (string, []string, bool) {
	if c.Pod != nil {
		return "", nil, false
	}
	if c.Request == nil {
		return "The pod does not exist.", nil, true
	}
	if condition := meta.FindStatusCondition(c.Request.Status.Conditions, v1alpha1.ConditionEvicted); condition != nil && condition.Status == "True" {
		return fmt.Sprintf("The pod is gone: its eviction was finished %s.", c.ago(condition.LastTransitionTime.Time)), nil, true
	}
	return "The pod is gone; its request will notice in a moment.", nil, true
}

func stuckTerminating(c *podCase) (string, []string, bool) {
	if c.Pod == nil || c.Pod.DeletionTimestamp == nil || c.Now.Before(c.Pod.DeletionTimestamp.Add(silence)) {
		return "", nil, false
	}
	since := "The pod should have ended " + c.ago(c.Pod.DeletionTimestamp.Time) + ", and has not."
	if len(c.Pod.Finalizers) > 0 {
		return since + " Finalizers hold it: " + strings.Join(c.Pod.Finalizers, ", ") + ".",
			[]string{"Find out why who owns the finalizer does not take it off. Take it off yourself only if you know what is left undone then."}, true
	}
	if c.Node != nil && !nodeReady(c.Node) {
		return since + " Its node is not ready, so nobody can say whether its containers run.",
			[]string{
				"Bring the node back.",
				"If the machine is off for good, say so: kubectl taint node " + c.Node.Name + " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
			}, true
	}
	return since, []string{"Look at the kubelet of node " + c.Pod.Spec.NodeName + ": a container or a volume does not let go."}, true
}

func terminating(c *podCase) (string, []string, bool) {
	if c.Pod.DeletionTimestamp == nil {
		return "", nil, false
	}
	left := c.Pod.DeletionTimestamp.Sub(c.Now)
	if left <= 0 {
		return "The pod is being deleted, and its grace period is over: it ends in a moment.", []string{"Nothing: wait."}, true
	}
	return "The pod is being deleted; its grace period ends in " + duration.HumanDuration(left) + ".", []string{"Nothing: wait."}, true
}

func over(c *podCase) (string, []string, bool) {
	return fmt.Sprintf("The pod has ended (%s); there is nothing to evict.", c.Pod.Status.Phase), nil, finished(c.Pod)
}

func mirror(c *podCase) (string, []string, bool) {
	_, ok := c.Pod.Annotations[corev1.MirrorPodAnnotationKey]
	return "The pod is a static pod of its node. It cannot be evicted; drains leave it where it is.",
		[]string{"To stop it, take its manifest off the node."}, ok
}

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
			"Find out why who owns the finalizer does not take it off.",
			fmt.Sprintf(`If you know what is left undone then, take it off: kubectl -n %s patch evictionrequest %s --type=merge -p '{"metadata":{"finalizers":null}}'`, er.Namespace, er.Name),
		}, true
}

func refused(c *podCase) (string, []string, bool) {
	condition := c.canceledBecause()
	if condition == nil || condition.Reason != v1alpha1.ReasonValidationFailed {
		return "", nil, false
	}
	return "The request was refused: " + sentence(condition.Message),
		[]string{"Evict the pod by the means of whoever manages it. A request for this very pod will be refused again."}, true
}

func canceled(c *podCase) (string, []string, bool) {
	condition := c.canceledBecause()
	if condition == nil {
		return "", nil, false
	}
	advice := "Nothing, if the pod is to stay. If not, drain its node again: the next call begins anew."
	if _, ok := c.foretold(); !ok {
		advice = "Nothing, if the pod is to stay. Beware: the next eviction call does not begin anew, see below what it would be answered."
	}
	return fmt.Sprintf("The eviction was called off %s: nobody wants it any more.", c.ago(condition.LastTransitionTime.Time)), []string{advice}, true
}

func notPlanned(c *podCase) (string, []string, bool) {
	if c.Request == nil || c.state != v1alpha1.StatePending {
		return "", nil, false
	}
	age := c.Now.Sub(c.Request.CreationTimestamp.Time)
	if age < time.Minute {
		return "The eviction is requested; Drawbridge will look at it in a moment.", []string{"Nothing: wait."}, true
	}
	return fmt.Sprintf("The eviction was requested %s, and nobody has looked at it.", c.ago(c.Request.CreationTimestamp.Time)),
		[]string{fmt.Sprintf("See whether Drawbridge runs and has a leader: kubectl -n %s get pods,leases", c.System)}, true
}

// intercepting is the interceptor, other than the last one, whose turn it is.
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
	return fmt.Sprintf("If you know that it has nothing to do, go on without it: kubectl drawbridge skip %s %s -n %s --reason=WHY", c.Pod.Name, c.active.Name, c.Pod.Namespace)
}

func silentOne(c *podCase) (string, []string, bool) {
	i := c.intercepting()
	if i == nil {
		return "", nil, false
	}
	who := "whoever acts for " + i.Name
	if len(i.ServiceAccounts) > 0 {
		who = "the program that runs as " + strings.Join(i.ServiceAccounts, " or ")
	}
	advice := []string{
		fmt.Sprintf("See whether %s runs, and whether it may patch evictionrequests/status.", who),
		c.skipCommand(),
		"Or wait: after 20 minutes of silence (--heartbeat-deadline) Drawbridge passes it over.",
	}
	switch {
	case i.Heard == nil && i.Since != nil && c.Now.Sub(*i.Since) >= silence:
		return fmt.Sprintf("Interceptor %s got its turn %s and has never been heard of.", c.turn(), c.ago(*i.Since)), advice, true
	case i.Heard != nil && c.Now.Sub(*i.Heard) >= silence:
		return fmt.Sprintf("Interceptor %s was last heard of %s.", c.turn(), c.ago(*i.Heard)), advice, true
	}
	return "", nil, false
}

func late(c *podCase) (string, []string, bool) {
	i := c.intercepting()
	if i == nil || i.Expected == nil || !c.Now.After(i.Expected.Add(time.Minute)) {
		return "", nil, false
	}
	return fmt.Sprintf("Interceptor %s works, but wanted to be done %s%s", c.turn(), c.ago(*i.Expected), saying(i.Message)),
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
	return fmt.Sprintf("To call the eviction off: kubectl drawbridge cancel pod/%s -n %s", c.Pod.Name, c.Pod.Namespace)
}

// lastStage reports whether the imperative evictor has its turn.
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

// lastNote is what the last event of a reason says, empty if there is none.
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

// relax is what to do about a budget.
func (c *podCase) relax(names []string, then string) []string {
	advice := []string{fmt.Sprintf("If pods are unhealthy, repair or scale up the application; if the budget allows nothing at all, relax it: kubectl -n %s edit poddisruptionbudget %s. %s", c.Pod.Namespace, names[0], then)}
	if owner := controller(c.Pod); strings.HasPrefix(owner, "ReplicaSet/") && !c.intercepted() {
		advice = append(advice, "For a Deployment, opt in to replacements first: surge.drawbridge.dev makes room without an edit of the budget.")
	}
	return advice
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

func notScheduled(c *podCase) (string, []string, bool) {
	return "The pod is on no node, so no drain meets it; an eviction would delete it at once.", nil, c.Pod.Spec.NodeName == ""
}

func wouldIntercept(c *podCase) (string, []string, bool) {
	_, foretold := c.foretold()
	if len(c.first) == 0 && !foretold || c.daemon() || c.passedOver() {
		return "", nil, false
	}
	names := c.first
	if len(names) == 0 {
		names = []string{"interceptors that you cannot see"}
	}
	advice := []string{"Nothing: drain the node. The first call starts the interceptors."}
	if blocking, _ := c.refusing(); len(blocking) > 0 {
		advice = append(advice, fmt.Sprintf("Budget %s would refuse at the end, as things are; the interceptors may change that.", strings.Join(blocking, ", ")))
	}
	return "Nobody has asked for the pod's eviction. When somebody does, " + strings.Join(names, ", then ") + " come first.", advice, true
}

func budgetBlocks(c *podCase) (string, []string, bool) {
	names, _ := c.refusing()
	if len(names) == 0 {
		return "", nil, false
	}
	return c.nobody() + "; budget " + strings.Join(names, ", ") + " refuses its eviction.",
		c.relax(names, "Then the drain's next try goes through."), true
}

func (c *podCase) daemon() bool { return strings.HasPrefix(controller(c.Pod), "DaemonSet/") }

func daemonSet(c *podCase) (string, []string, bool) {
	return "The pod belongs to " + controller(c.Pod) + ", which would make another one on the same node. Drains leave it out.", nil, c.daemon()
}

func nothingBlocks(c *podCase) (string, []string, bool) {
	if c.DryRun != nil && c.DryRun.Result != answer.ResultEvicted && c.DryRun.Result.Failed() && c.DryRun.Result != answer.ResultForbidden {
		return "Neither an interceptor nor a budget blocks the pod, but the eviction is refused: " + sentence(c.DryRun.Detail),
			[]string{"The text says who refuses. If it passes by itself, so does the drain's next try."}, true
	}
	if c.DryRun == nil || c.DryRun.Result == answer.ResultForbidden {
		return "As far as you may look, nothing blocks the pod.", []string{"Have somebody ask who may evict it (create pods/eviction): what a call would be answered is not known."}, true
	}
	return "Nothing blocks the pod, and no budget refuses: " + strings.ToLower(c.nobody()[:1]) + c.nobody()[1:] + ".", []string{"Nothing. An eviction call would go through at once."}, true
}

// nobody says that nobody holds up an eviction call.
func (c *podCase) nobody() string {
	if len(c.first) > 0 {
		return "Its interceptors have nothing to do for it now"
	}
	return "Nobody intercepts the pod"
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// sentence ends a text with a full stop.
func sentence(words string) string {
	words = text.Clean(words)
	if words == "" || strings.HasSuffix(words, ".") {
		return words
	}
	return words + "."
}

// saying ends a sentence with what somebody says.
func saying(message string) string {
	if message = strings.TrimSpace(message); message == "" {
		return "."
	}
	return ": " + sentence(message)
}
