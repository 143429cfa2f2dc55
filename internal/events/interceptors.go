package events

import (
	"strings"
)

// Reasons of the events that the SDK records in the name of an interceptor.
const (
	ReasonEvacuationStarted   = "EvacuationStarted"
	ReasonEvacuationCompleted = "EvacuationCompleted"
	ReasonEvacuationFailed    = "EvacuationFailed"
	ReasonEvacuationCanceled  = "EvacuationCanceled"
	ReasonCancelFailed        = "CancelFailed"
	ReasonPointOfNoReturn     = "PointOfNoReturn"
	ReasonReportRefused       = "ReportRefused"
)

// Actions of the events of interceptors.
const (
	actionEvacuate = "EvacuatePod"
	actionUndo     = "CancelEvacuation"
	actionReport   = "ReportProgress"
)

// EvacuationStarted says that an interceptor has begun. The message is its first.
func EvacuationStarted(interceptor, pod, message string) Event {
	return normal(ReasonEvacuationStarted, actionEvacuate, "Interceptor %s has begun with pod %s%s", interceptor, pod, saying(message))
}

// EvacuationCompleted says that an interceptor hands over. The message is its
// last.
func EvacuationCompleted(interceptor, pod, message string) Event {
	return normal(ReasonEvacuationCompleted, actionEvacuate, "Interceptor %s is done with pod %s%s", interceptor, pod, saying(message))
}

// EvacuationFailed says that an interceptor ran into an error and tries again.
func EvacuationFailed(interceptor, pod string, err error) Event {
	return warning(ReasonEvacuationFailed, actionEvacuate, "Interceptor %s failed with pod %s and will try again%s", interceptor, pod, saying(err.Error()))
}

// EvacuationCanceled says that an interceptor has undone what it began.
func EvacuationCanceled(interceptor, pod string) Event {
	return normal(ReasonEvacuationCanceled, actionUndo, "Interceptor %s has undone what it began with pod %s.", interceptor, pod)
}

// CancelFailed says that an interceptor could not undo what it began and tries
// again.
func CancelFailed(interceptor, pod string, err error) Event {
	return warning(ReasonCancelFailed, actionUndo, "Interceptor %s could not undo what it began with pod %s and will try again%s", interceptor, pod, saying(err.Error()))
}

// PointOfNoReturn says that a cancellation came too late for an interceptor.
func PointOfNoReturn(interceptor, pod string) Event {
	return warning(ReasonPointOfNoReturn, actionUndo, "Interceptor %s is past the point of no return with pod %s: it cannot undo what it began.", interceptor, pod)
}

// ReportRefused says that an interceptor's report was not accepted, so that it
// will count as silent.
func ReportRefused(interceptor string, err error) Event {
	return warning(ReasonReportRefused, actionReport, "The report of interceptor %s is refused%s", interceptor, saying(err.Error()))
}

// saying appends a quoted message to a sentence.
func saying(message string) string {
	if message = strings.TrimSpace(message); message == "" {
		return "."
	}
	return ": " + message
}
