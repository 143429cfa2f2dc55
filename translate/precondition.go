package translate

const (
	textOtherPod   = "Precondition failed: another pod has that name now, the one that was meant is gone"
	textPodChanged = "Precondition failed: the pod has changed since the resource version that was given"

	causePrecondition = "EvictionPreconditionFailed"
)

// OtherPod answers 409: the UID of the call is that of a pod which is gone.
func OtherPod(about Subject) Verdict { return preconditionFailed(about, textOtherPod) }

// PodChanged answers 409: the resource version of the call is an old one.
func PodChanged(about Subject) Verdict { return preconditionFailed(about, textPodChanged) }

func preconditionFailed(about Subject, text string) Verdict {
	about.Request = "" // This answer has no request.
	return Verdict{
		Outcome: Conflict, Reason: ReasonPreconditionFailed, Subject: about,
		Message: text, CauseType: causePrecondition, CauseMessage: "a precondition of the call does not hold",
	}
}
