package translate

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The texts that callers see. They depend on the state alone (rule W3): Cluster
// API groups by them, kubectl repeats them every 5 s, and descheduler looks for
// EvacuationTriggered.
const (
	// EvacuationTriggered begins every denial because of a request (W2).
	EvacuationTriggered = "Eviction triggered evacuation"
	// NotCoordinated begins every denial because of our own failure (W6).
	NotCoordinated = "Eviction could not be coordinated yet"
	// NotStarted begins the denial of a call that would have started one evacuation
	// too many.
	NotStarted = "Eviction could not be started yet"
	// DryRunWarning begins the one warning that we ever send (W5), to a dry run only. The
	// pod, DryRunAnswered, and the code and the text of the real call's answer follow.
	DryRunWarning = "drawbridge: a real eviction of pod "
	// DryRunAnswered is between the pod and the answer.
	DryRunAnswered = " would be answered "

	textAccepted   = EvacuationTriggered + ": accepted, the pod's interceptors come first"
	textWaiting    = EvacuationTriggered + ": waiting for interceptor %q (%d of %d)"
	textEvicting   = EvacuationTriggered + ": its interceptors are done, its eviction comes next (%d of %d)"
	textBudget     = EvacuationTriggered + ": waiting for the pod's disruption budget %s (%d of %d)"
	textExhausted  = EvacuationTriggered + ": disruption budget %s can never allow it, the pod is deleted from %s on (%d of %d)"
	textBudgets    = EvacuationTriggered + ": waiting until only one disruption budget selects the pod, not all of %s (%d of %d)"
	textRefused    = EvacuationTriggered + ": its interceptors are done, its eviction is refused for now: %s (%d of %d)"
	textEnding     = EvacuationTriggered + ": the pod is terminating"
	textFinalizers = textEnding + " (finalizers %s)"
	textStalled    = EvacuationTriggered + ": interceptor %q cannot go on: %s"
	textRestarting = EvacuationTriggered + ": it was canceled and restarts on the next try"
	textHeld       = EvacuationTriggered + ": its request is being deleted, but finalizer %q holds it"
	textTooMany    = EvacuationTriggered + ": in progress, but it has too many requesters to add one more"
	textTooManyNew = NotStarted + ": too many evacuations began on this node in the last minute, retry later"
	textMoved      = NotCoordinated + ": the pod already left its node and a replacement has its name, retry later"
)

// troubleTexts says in a few constant words what failed.
var troubleTexts = map[Reason]string{
	ReasonNotSynced:       "the controller is still starting",
	ReasonLookupFailed:    "the state of the pod could not be read",
	ReasonPreflightFailed: "an interceptor of the pod could not be asked",
	ReasonWriteFailed:     "the request could not be written",
	ReasonChanged:         "the request changed at the same moment",
	ReasonDeadline:        "there was not enough time",
	ReasonInternalError:   "an internal error occurred",
	ReasonOwnCall:         "the request is not in the imperative stage",
	ReasonNotItsTurn:      "it is not the turn of the caller's interceptor",
}

// Types of the one cause in an answer's details.
const (
	causeInProgress  = "EvictionRequestInProgress"
	causeLastStage   = "interceptor " + v1alpha1.ImperativeEvictionInterceptor + " is active"
	causeTrouble     = "EvictionNotCoordinated"
	causeReplacement = "EvictionOfReplacement"
	causeRefused     = "EvictionRefused"
	causeTooManyNew  = "EvictionNotStarted"
)

// refusedByOurs is the reason of a refusal by a replica of our own webhook that has not
// yet seen that the last stage is reached: events.ReasonWebhookNotReady.
const refusedByOurs = "WebhookNotReady"

// maxShown is how much of an interceptor's or node's name a text repeats, so
// that the line stays below 200 characters.
const maxShown = 60

// Subject is what a verdict is about. Every field but Namespace and Pod may be
// empty.
type Subject struct {
	Namespace string
	Pod       string
	PodUID    types.UID
	// Request is the name of the EvictionRequest behind the answer.
	Request string
	// Requester is the name of the caller in spec.requesters.
	Requester string
}

// Allowed passes the call on to the API server's own checks.
func Allowed(about Subject, reason Reason) Verdict {
	return Verdict{Outcome: Allow, Reason: reason, Subject: about}
}

// Accepted denies: a request exists, but no interceptor has its turn yet.
func Accepted(about Subject) Verdict {
	return inProgress(about, ReasonAccepted, textAccepted, "the request is accepted")
}

// Waiting denies: the interceptor has its turn. Position counts from 1, and the
// total includes imperative-eviction.k8s.io, for which there is LastStage.
func Waiting(about Subject, interceptor string, position, total int) Verdict {
	name := shorten(interceptor, maxShown)
	return inProgress(about, ReasonWaiting, fmt.Sprintf(textWaiting, name, position, total),
		"interceptor "+name+" is active")
}

// LastStage denies: all interceptors are done, and the call must not pass. To people,
// imperative-eviction.k8s.io is no third party: what is left is the pod's budget, which
// refusal of the evictor's report names if it was refused, and the pod's end; the report has an
// expectedFinishTime if the pod is deleted in spite of the budget. Position is the last one.
func LastStage(about Subject, report v1alpha1.InterceptorStatus, position int) Verdict {
	text, refusal, deletes := fmt.Sprintf(textEvicting, position, position), report.Refusal, report.ExpectedFinishTime
	switch {
	case refusal == nil, refusal.Reason == refusedByOurs:
		// The second is our own and temporary.
	case len(refusal.Budgets) == 1 && deletes != nil:
		text = fmt.Sprintf(textExhausted, shorten(refusal.Budgets[0], maxShown), deletes.UTC().Format(time.RFC3339), position, position)
	case len(refusal.Budgets) == 1:
		text = fmt.Sprintf(textBudget, shorten(refusal.Budgets[0], maxShown), position, position)
	case len(refusal.Budgets) > 1:
		text = fmt.Sprintf(textBudgets, shorten(strings.Join(refusal.Budgets, ", "), maxShown), position, position)
	default:
		// Only the word: the API server's text may differ every time.
		text = fmt.Sprintf(textRefused, shorten(refusal.Reason, maxShown), position, position)
	}
	return inProgress(about, ReasonWaiting, text, causeLastStage)
}

// Ending denies: the pod terminates, and the call must not meet its successor.
func Ending(about Subject, finalizers []string) Verdict {
	text := textEnding
	if len(finalizers) > 0 {
		text = fmt.Sprintf(textFinalizers, shorten(strings.Join(finalizers, ", "), maxShown))
	}
	return inProgress(about, ReasonWaiting, text, "the pod is terminating")
}

// Stalled denies: the active interceptor makes no progress, or has given up and keeps the
// pod. Why is constant while it is true.
func Stalled(about Subject, interceptor, why string) Verdict {
	name := shorten(interceptor, maxShown)
	return inProgress(about, ReasonStalled, fmt.Sprintf(textStalled, name, shorten(why, maxShown)), "interceptor "+name+" cannot go on")
}

// Restarting denies: the request was canceled, and a new one starts with the
// next call.
func Restarting(about Subject) Verdict {
	return inProgress(about, ReasonRestarting, textRestarting, "the request was canceled")
}

// Held denies: the request is being deleted, and a finalizer holds it. No other one can
// begin until it is gone, and the pod's interceptors cannot be asked otherwise.
func Held(about Subject, finalizer string) Verdict {
	return inProgress(about, ReasonRequestHeld, fmt.Sprintf(textHeld, shorten(finalizer, maxShown)), "the request is held by a finalizer")
}

// TooManyRequesters denies: the request runs, but this caller cannot be added.
func TooManyRequesters(about Subject) Verdict {
	return inProgress(about, ReasonTooManyRequesters, textTooMany, "the request has the largest number of requesters")
}

// Trouble denies because of our own failure, in a way that every caller retries. The
// reason is one of those for our own failures.
func Trouble(about Subject, reason Reason) Verdict {
	text, ok := troubleTexts[reason]
	if !ok {
		reason, text = ReasonInternalError, troubleTexts[ReasonInternalError]
	}
	about.Request = "" // This answer has no request.
	return Verdict{
		Outcome: Deny, Reason: reason, Subject: about,
		Message: NotCoordinated + ": " + text + ", retry", CauseType: causeTrouble, CauseMessage: text,
	}
}

// WriteRefused denies because the cluster refuses for good what we must write first. Who
// refuses, and what, are a few words that are always the same for a cause.
func WriteRefused(about Subject, who, what string) Verdict {
	about.Request = ""
	text := who + " refuses " + what
	return Verdict{
		Outcome: Deny, Reason: ReasonWriteRefused, Subject: about,
		Message: NotCoordinated + ": " + text + ", retry", CauseType: causeTrouble, CauseMessage: text,
	}
}

// ReplacementNotFound answers 404: the pod that was to be evicted has left node
// from, and its successor on node to is not touched. An empty to means that the
// successor has no node yet.
func ReplacementNotFound(about Subject, from, to string) Verdict {
	where := "without a node"
	if to != "" {
		where = fmt.Sprintf("on node %q", shorten(to, maxShown))
	}
	return Verdict{
		Outcome: NotFound, Reason: ReasonReplacement, Subject: about,
		Message: fmt.Sprintf("the pod already left node %q; its replacement %s is not evicted",
			shorten(from, maxShown), where),
		CauseType: causeReplacement, CauseMessage: "the pod is a replacement",
	}
}

// Left answers 404: the pod that was to be evicted has left node from, and nothing has
// its name.
func Left(about Subject, from string) Verdict {
	return Verdict{
		Outcome: NotFound, Reason: ReasonLeft, Subject: about,
		Message:   fmt.Sprintf("the pod already left node %q", shorten(from, maxShown)),
		CauseType: causeReplacement, CauseMessage: "the pod has left",
	}
}

// ReplacementDenied answers 429 in the case of ReplacementNotFound.
func ReplacementDenied(about Subject) Verdict {
	return Verdict{
		Outcome: Deny, Reason: ReasonReplacement, Subject: about,
		Message: textMoved, CauseType: causeReplacement, CauseMessage: "the pod is a replacement",
	}
}

// InDryRun is the verdict on a dry run of a call that would get v: allowed, with a
// warning that says which answer the real call would get from our webhook, if any.
func (v Verdict) InDryRun() Verdict {
	dry := Verdict{Outcome: Allow, Reason: ReasonDryRun, Subject: v.Subject}
	if v.Outcome != Allow {
		dry.Warning = fmt.Sprintf("%s%s/%s%s%d: %s", DryRunWarning, v.Subject.Namespace, v.Subject.Pod, DryRunAnswered, v.code(), v.Message)
	}
	return dry
}

// DryRunAnswer is the answer that a real call would get from our webhook, "429: ...", as
// the warnings of its dry run say; not ok if they have none. Then either the webhook
// would allow the real call, or it was not called.
func DryRunAnswer(warnings []string) (answer string, ok bool) {
	for _, warning := range warnings {
		about, ours := strings.CutPrefix(warning, DryRunWarning)
		if _, answer, ok := strings.Cut(about, DryRunAnswered); ours && ok {
			return answer, true
		}
	}
	return "", false
}

func inProgress(about Subject, reason Reason, text, cause string) Verdict {
	return Verdict{Outcome: Deny, Reason: reason, Subject: about, Message: text, CauseType: causeInProgress, CauseMessage: cause}
}
