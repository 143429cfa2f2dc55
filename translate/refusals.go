package translate

import "strings"

// maxText is the longest text of a denial in characters (rule W3).
const maxText = 199

// budgetWords must not be in our texts: Cluster API would count them as a budget's
// (rule W2).
const budgetWords = "disruption budget"

// Refused denies on behalf of an interceptor: the pod must not be evicted now, and a
// request could not help. The text is the interceptor's, sanitized.
func Refused(about Subject, interceptor, text string) Verdict {
	about.Request = "" // This answer has no request.
	name := shorten(interceptor, maxShown)
	return Verdict{
		Outcome: Deny, Reason: ReasonPreflightDenied, Subject: about, Message: refusal(name, text),
		CauseType: causeRefused, CauseMessage: "interceptor " + name + " refuses",
	}
}

// refusal is an interceptor's text in one line of printable characters. One that looks
// like the text of a running request (descheduler would assume that the pod moves) or
// of a budget is not repeated.
func refusal(interceptor, text string) string {
	text = shorten(printable(strings.Join(strings.Fields(text), " ")), maxText)
	if text == "" || strings.Contains(text, EvacuationTriggered) || strings.Contains(text, budgetWords) {
		return "Eviction refused by interceptor \"" + printable(interceptor) + "\", retry later"
	}
	return text
}

// TooManyNew denies a call that would start a request where too many have begun in the
// last minute. Nothing was started, so the text does not begin with EvacuationTriggered
// (rule W2).
func TooManyNew(about Subject) Verdict {
	about.Request = ""
	return Verdict{
		Outcome: Deny, Reason: ReasonTooManyNew, Subject: about,
		Message: textTooManyNew, CauseType: causeTooManyNew, CauseMessage: "too many new evacuations on this node",
	}
}
