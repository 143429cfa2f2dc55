package translate

// transportTexts says in a few constant words what is wrong with the call as it came.
var transportTexts = map[Reason]string{
	ReasonTooLarge:         "the call is larger than the webhook reads",
	ReasonUnreadable:       "the webhook cannot read the call",
	ReasonBusy:             "too many large calls came at the same moment",
	ReasonNotAuthenticated: "the webhook does not know this API server yet",
	ReasonDeadline:         troubleTexts[ReasonDeadline],
	ReasonInternalError:    troubleTexts[ReasonInternalError],
}

// TransportText says in a few constant words why a call could not be answered. It is
// the same for calls of every kind.
func TransportText(reason Reason) string {
	if text, ok := transportTexts[reason]; ok {
		return text
	}
	return transportTexts[ReasonInternalError]
}

// Undecodable denies a call of which only the review's UID is known, in a way that every
// caller retries: an HTTP error would let it pass if the webhook's failure policy is
// Ignore.
func Undecodable(reason Reason) Verdict {
	if _, ok := transportTexts[reason]; !ok {
		reason = ReasonInternalError
	}
	text := TransportText(reason)
	return Verdict{
		Outcome: Deny, Reason: reason, Message: NotCoordinated + ": " + text + ", retry",
		CauseType: causeTrouble, CauseMessage: text,
	}
}
