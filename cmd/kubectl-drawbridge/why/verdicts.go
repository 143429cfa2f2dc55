package why

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Verdict is the state of the pod's eviction in one word.
type Verdict string

// The verdicts, in the order in which they are checked.
const (
	VerdictGone              Verdict = "Gone"
	VerdictStuckTerminating  Verdict = "StuckTerminating"
	VerdictTerminating       Verdict = "Terminating"
	VerdictFinished          Verdict = "Finished"
	VerdictMirrorPod         Verdict = "MirrorPod"
	VerdictRequestHeld       Verdict = "RequestHeld"
	VerdictNativeEviction    Verdict = "NativeEviction"
	VerdictRefused           Verdict = "Refused"
	VerdictCanceled          Verdict = "Canceled"
	VerdictNotPlanned        Verdict = "NotPlanned"
	VerdictInterceptorSilent Verdict = "InterceptorSilent"
	VerdictHeldByHook        Verdict = "HeldByHook"
	VerdictWaitsForHook      Verdict = "WaitsForHook"
	VerdictWaitsForBudget    Verdict = "WaitsForBudget"
	VerdictInterceptorLate   Verdict = "InterceptorLate"
	VerdictInterceptorWorks  Verdict = "InterceptorWorks"
	VerdictGuardHolds        Verdict = "GuardHolds"
	VerdictSeveralBudgets    Verdict = "SeveralBudgets"
	VerdictBudgetNeverAllows Verdict = "BudgetNeverAllows"
	VerdictEvictionBlocked   Verdict = "EvictionBlocked"
	VerdictEvictionFails     Verdict = "EvictionFails"
	VerdictEvicting          Verdict = "Evicting"
	VerdictNotScheduled      Verdict = "NotScheduled"
	VerdictWaitsForWave      Verdict = "WaitsForWave"
	VerdictWebhookNotAsked   Verdict = "WebhookNotAsked"
	VerdictWriteRefused      Verdict = "WriteRefused"
	VerdictWouldIntercept    Verdict = "WouldIntercept"
	VerdictKept              Verdict = "Kept"
	VerdictLeftToOwner       Verdict = "LeftToOwner"
	VerdictBudgetBlocks      Verdict = "BudgetBlocks"
	VerdictDaemonSet         Verdict = "DaemonSet"
	VerdictNothingBlocks     Verdict = "NothingBlocks"
)

// check returns the headline and advice if its verdict applies.
type check func(c *podCase) (headline string, advice []string, ok bool)

// verdicts are checked in this order; the first one that applies is the verdict.
var verdicts = []struct {
	name  Verdict
	check check
}{
	{VerdictGone, gone},                         // Only the past is left to explain.
	{VerdictStuckTerminating, stuckTerminating}, // It was evicted, and does not end.
	{VerdictTerminating, terminating},
	{VerdictFinished, over},
	{VerdictMirrorPod, mirror},                // The API server cannot evict it.
	{VerdictRequestHeld, requestHeld},         // Nothing acts on the request, and no other one can begin.
	{VerdictNativeEviction, nativeEviction},   // Only Kubernetes' own API was asked, whatever became of an earlier request.
	{VerdictRefused, refused},                 // The request will never do anything.
	{VerdictCanceled, canceled},               // The eviction is not wanted now.
	{VerdictNotPlanned, notPlanned},           // The controller has not observed the request.
	{VerdictInterceptorSilent, silentOne},     // It is its turn, and it does not report.
	{VerdictHeldByHook, heldByHook},           // It is a hook's turn, and it has failed.
	{VerdictWaitsForHook, waitsForHook},       // It is a hook's turn, and it runs.
	{VerdictWaitsForBudget, waitsForBudget},   // It is the turn of the EvictionBudgets.
	{VerdictInterceptorLate, late},            // It reports, but is late.
	{VerdictInterceptorWorks, works},          // All is well: wait.
	{VerdictGuardHolds, guardHolds},           // All interceptors are done, and Drawbridge's own budget is closed.
	{VerdictSeveralBudgets, severalBudgets},   // No call can succeed, no matter what the budgets allow.
	{VerdictBudgetNeverAllows, evictionNever}, // All interceptors are done, and a budget can never allow it.
	{VerdictEvictionBlocked, evictionBlocked}, // All interceptors are done, and a budget refuses.
	{VerdictEvictionFails, evictionFails},     // All interceptors are done, and something else refuses.
	{VerdictEvicting, evicting},
	// From here on there is no request.
	{VerdictNotScheduled, notScheduled},
	{VerdictWaitsForWave, waitsForWave},       // A maintenance will ask for it, after other pods.
	{VerdictWebhookNotAsked, webhookNotAsked}, // Interceptors exist, but a call never reaches them.
	{VerdictWriteRefused, writeRefused},       // They exist, but the request for them cannot be written.
	{VerdictWouldIntercept, wouldIntercept},
	{VerdictKept, kept},               // A maintenance keeps the pod,
	{VerdictLeftToOwner, leftToOwner}, // or to its owner for a while.
	{VerdictBudgetNeverAllows, budgetNever},
	{VerdictBudgetBlocks, budgetBlocks},
	{VerdictDaemonSet, daemonSet},
	{VerdictNothingBlocks, nothingBlocks},
}

func (c *podCase) ago(t time.Time) string { return duration.HumanDuration(c.Now.Sub(t)) + " ago" }

func wouldIntercept(c *podCase) (string, []string, bool) {
	_, foretold := c.foretold()
	if len(c.first) == 0 && !foretold || pods.IsOfDaemonSet(c.Pod) || c.passedOver() {
		return "", nil, false
	}
	names := c.first
	if len(names) == 0 {
		names = []string{"interceptors that you cannot see"}
	}
	advice := []string{"Nothing: drain the node. The first call starts the interceptors."}
	if _, never := c.never(); never != "" {
		advice = append(advice, "Then "+never+", unless an interceptor makes room for it.")
	} else if blocking, _ := c.refusing(); len(blocking) > 0 {
		advice = append(advice, fmt.Sprintf("Budget %s would currently refuse the eviction at the end; the interceptors may change that.", strings.Join(blocking, ", ")))
	}
	return "Nobody has asked for the pod's eviction. When somebody does, " + strings.Join(names, ", then ") + " come first.", advice, true
}

func budgetNever(c *podCase) (string, []string, bool) {
	name, says := c.never()
	return c.nobody() + "; " + says + ".", c.relaxNever(name, "Then the drain's next try goes through."), says != ""
}

func budgetBlocks(c *podCase) (string, []string, bool) {
	names, _ := c.refusing()
	if len(names) == 0 {
		return "", nil, false
	}
	return c.nobody() + "; budget " + strings.Join(names, ", ") + " refuses its eviction.",
		c.relax(names, "Then the drain's next try goes through."), true
}

func nothingBlocks(c *podCase) (string, []string, bool) {
	if c.DryRun != nil && c.DryRun.Result != translate.ResultEvicted && c.DryRun.Result.Failed() && c.DryRun.Result != translate.ResultForbidden {
		return "Neither an interceptor nor a budget blocks the pod, but the eviction is refused: " + sentence(c.DryRun.Detail),
			[]string{"The text says who refuses. If it passes by itself, so does the drain's next try."}, true
	}
	if c.DryRun == nil || c.DryRun.Result == translate.ResultForbidden {
		return "As far as you may look, nothing blocks the pod.", []string{"Have somebody ask who may evict it (create pods/eviction): what a call would be answered is not known."}, true
	}
	return "Nothing blocks the pod, and no budget refuses: " + strings.ToLower(c.nobody()[:1]) + c.nobody()[1:] + ".", []string{"Nothing. An eviction call would go through at once."}, true
}

// nobody is the headline if nothing blocks an eviction call.
func (c *podCase) nobody() string {
	if len(c.first) > 0 {
		return "Its interceptors have nothing to do for it now"
	}
	return "Nobody intercepts the pod"
}

// sentence ends a text with a full stop.
func sentence(words string) string {
	words = text.Clean(words)
	if words == "" || strings.HasSuffix(words, ".") {
		return words
	}
	return words + "."
}

// saying appends a quoted message to a sentence.
func saying(message string) string {
	if message = strings.TrimSpace(message); message == "" {
		return "."
	}
	return ": " + sentence(message)
}
