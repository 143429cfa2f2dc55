package webhook

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// lateWindow is how long after the end of its request a call of an interceptor's
// account counts as late. After that, it is a normal caller: an account may both drain
// and intercept.
const lateWindow = time.Minute

// hasTurn reports whether the caller may act for the active interceptor.
func (in *Input) hasTurn() bool {
	active := in.Request.Status.ActiveInterceptors
	return len(active) > 0 && slices.Contains(in.Acts, active[0])
}

// onlyActs reports whether the caller acts for an interceptor of the plan and is not
// also a requester. As a requester it would request what it intercepts: its own calls
// would keep a request alive that all others have given up.
func (in *Input) onlyActs() bool {
	return len(in.Acts) > 0 && !slices.ContainsFunc(in.Request.Spec.Requesters, in.isEntry)
}

// interceptorsTurn lets the active interceptor evict the pod itself; budgets still
// apply. Its turn may have ended since the cache saw it.
func interceptorsTurn(in *Input) (Decision, bool) {
	if in.RequestSource != Live {
		return need(NeedLiveRequest)
	}
	return in.allowStage(translate.ReasonActiveInterceptor)
}

// callIsLate refuses the call of an interceptor whose request was canceled or deleted a
// moment ago. As a normal caller it would start it again.
func callIsLate(in *Input) (Decision, bool) {
	if len(in.Acts) == 0 {
		return nothing()
	}
	late := in.RequestSource == Live // The cache still had it active.
	if in.Request != nil {
		c := meta.FindStatusCondition(in.Request.Status.Conditions, v1alpha1.ConditionCanceled)
		late = late || c != nil && in.Now.Sub(c.LastTransitionTime.Time) < lateWindow
	}
	if !late {
		return nothing()
	}
	return say(translate.Trouble(in.subject(), translate.ReasonNotItsTurn))
}

// preflightsDecide combines the preflights: one denial denies, and all of them together
// may allow.
func preflightsDecide(in *Input) (Decision, bool) {
	if !in.AskFirst {
		return nothing()
	}
	if in.Preflights == nil {
		return need(NeedPreflights)
	}
	failed, allowed := false, 0
	for _, asked := range in.Preflights {
		switch {
		case asked.Failed:
			failed = true
		case asked.Verdict.Outcome == preflight.Deny:
			return say(translate.Refused(in.subject(), asked.Interceptor, asked.Verdict.Text))
		case asked.Verdict.Outcome == preflight.Allow:
			allowed++
		}
	}
	switch {
	case failed:
		return say(translate.Trouble(in.subject(), translate.ReasonPreflightFailed))
	case allowed == len(in.Interceptors):
		return in.allowSeen(translate.ReasonPreflightAllowed)
	default:
		return nothing()
	}
}

// startIsLimited bounds how many requests a caller may begin on a node. A dry run
// begins none.
func startIsLimited(in *Input) (Decision, bool) {
	switch {
	case in.Call.DryRun:
		return nothing()
	case in.Start == StartLimited:
		return need(NeedStart)
	case in.Start == StartRefused:
		return say(translate.TooManyNew(in.subject()))
	default:
		return nothing()
	}
}
