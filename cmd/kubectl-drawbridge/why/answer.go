package why

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// answerOf returns the answer to an eviction call. The webhook allows a dry run and
// warns how the real call would be answered. Without the warning, the real call gets
// the same answer as the dry run, no matter which interceptors there are.
func answerOf(c *podCase) Answer {
	foretold, ok := c.foretold()
	refusal, unwritten := c.unwritten()
	switch {
	case c.Pod == nil:
		return Answer{Text: "404: there is no such pod"}
	case c.DryRun == nil:
		return Answer{Text: "not known: it was not asked"}
	case c.DryRun.Result == translate.ResultForbidden:
		return Answer{Text: "not known to you: " + text.Clean(c.DryRun.Detail)}
	case unwritten:
		return Answer{Text: c.deniedBy(refusal)}
	case ok:
		return Answer{Text: foretold}
	case c.DryRun.Result == translate.ResultEvicted && c.passedOver():
		return Answer{Evicts: true, Text: "evicted at once, bypassing the interceptors"}
	case c.DryRun.Result == translate.ResultEvicted:
		return Answer{Evicts: true, Text: "evicted: the API server would accept the call"}
	default:
		return Answer{Text: fmt.Sprintf("refused (%s): %s", c.DryRun.Result, text.Clean(c.DryRun.Detail))}
	}
}

// foretold is the webhook's answer to a real call, if it was called and would not allow
// it.
func (c *podCase) foretold() (string, bool) {
	if c.DryRun == nil {
		return "", false
	}
	return translate.DryRunAnswer(c.DryRun.Warnings)
}

// needsWebhook reports whether the dry run does not explain why the answer ignores the
// interceptors that should run first.
func needsWebhook(f Facts) bool { return newCase(&f).passedOver() }

// passedOver reports whether a call would bypass interceptors that should run first or
// are working.
func (c *podCase) passedOver() bool {
	if c.Pod == nil || c.DryRun == nil || c.DryRun.Result == translate.ResultForbidden {
		return false
	}
	if _, ok := c.foretold(); ok {
		return false
	}
	if c.Pod.DeletionTimestamp != nil || pods.HasEnded(c.Pod) || c.Pod.Status.Phase == corev1.PodPending || c.Pod.Spec.NodeName == "" ||
		pods.StaysOnNode(c.Pod) || c.Pod.Spec.SchedulingGroup != nil {
		return false
	}
	return len(c.first) > 0 || c.Request != nil && !v1alpha1.IsFinished(c.Request) && !c.lastStage() && c.intercepted()
}

// whyPassedOver says why a call would bypass the interceptors. Without a known problem,
// the interceptors have nothing to do.
func (c *podCase) whyPassedOver() (why string, problem bool) {
	switch {
	case c.Webhook == nil:
		return "either they all have nothing to do for this pod, or the API server does not ask Drawbridge's webhook", true
	case c.Webhook.Problem != "":
		return c.Webhook.Problem, true
	case c.Webhook.Unknown != "":
		return "either they all have nothing to do for this pod, or the API server does not ask Drawbridge's webhook, which could not be learned: " + c.Webhook.Unknown, true
	default:
		return "asked by Drawbridge's webhook, they all say that they have nothing to do for this pod now", false
	}
}

// webhookNotAsked is for pods whose interceptors a call would bypass.
func webhookNotAsked(c *podCase) (string, []string, bool) {
	why, problem := c.whyPassedOver()
	if !problem || !c.passedOver() || len(c.first) == 0 {
		return "", nil, false
	}
	headline := fmt.Sprintf("%s should come first, but an eviction call bypasses them: %s.", strings.Join(c.first, ", then "), why)
	if _, never := c.never(); never != "" {
		headline += " Budget" + strings.TrimPrefix(never, "budget") + "."
	} else if blocking, _ := c.refusing(); len(blocking) > 0 {
		headline += " Budget " + strings.Join(blocking, ", ") + " refuses it at present."
	}
	return headline, []string{
		"Repair that before you drain the node: kubectl drawbridge doctor, and the runbook \"The webhook is down\".",
		"Or drain with kubectl drawbridge drain, which does not depend on the webhook.",
	}, true
}

// passedBy notes that a call would bypass interceptors that are working, or that run
// first after a cancellation.
func passedBy(c *podCase) []string {
	why, problem := c.whyPassedOver()
	if !c.passedOver() || problem && c.Request == nil { // The headline says it then.
		return nil
	}
	if !problem {
		return []string{"Its interceptors would not hold an eviction call up: " + why + "."}
	}
	return []string{"An eviction call would bypass the interceptors: " + why + "."}
}
