package translate

const (
	textGuardClosed   = EvacuationTriggered + ": the guard of the pod is closed"
	textGuardTroubled = NotCoordinated + ": the guard of the pod is closed, retry"
	causeGuardClosed  = "the guard of the pod is closed"
)

// GuardClosed denies a call that would otherwise reach the guard's budget, and perhaps
// a second one, for which the API server answers 500.
func GuardClosed(about Subject) Verdict {
	if about.Request != "" {
		return inProgress(about, ReasonGuardClosed, textGuardClosed, causeGuardClosed)
	}
	return Verdict{
		Outcome: Deny, Reason: ReasonGuardClosed, Subject: about,
		Message: textGuardTroubled, CauseType: causeTrouble, CauseMessage: causeGuardClosed,
	}
}
