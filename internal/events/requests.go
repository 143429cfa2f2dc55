package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events of the request controller.
const (
	ReasonInterceptorActivated  = "InterceptorActivated"
	ReasonInterceptorCompleted  = "InterceptorCompleted"
	ReasonInterceptorSkipped    = "InterceptorSkipped"
	ReasonInterceptorTimedOut   = "InterceptorTimedOut"
	ReasonDeadlineReached       = "DeadlineReached"
	ReasonShortNotice           = "ShortNotice"
	ReasonNodeLost              = "NodeLost"
	ReasonNodeBack              = "NodeBack"
	ReasonRequestHeld           = "RequestHeld"
	ReasonCancellationForbidden = "CancellationForbidden"
	ReasonEvicted               = "Evicted"
	ReasonCanceled              = "Canceled"
	ReasonCompletionUnchecked   = "CompletionUnchecked"
	ReasonOutcomeUntrue         = "OutcomeUntrue"
)

// Actions of the events of the request controller.
const (
	actionActivate  = "ActivateInterceptor"
	actionPassOver  = "PassOverInterceptor"
	actionFinish    = "FinishEviction"
	actionWithdraw  = "CancelEviction"
	actionRejection = "RefuseEviction"
)

// InterceptorActivated says that it is the interceptor's turn. Position counts
// from 1.
func InterceptorActivated(interceptor string, position, total int) Event {
	return normal(ReasonInterceptorActivated, actionActivate, "Interceptor %s is active (%d of %d).", interceptor, position, total)
}

// InterceptorCompleted says that the interceptor reported that it is done.
func InterceptorCompleted(interceptor string) Event {
	return normal(ReasonInterceptorCompleted, actionPassOver, "Interceptor %s has completed.", interceptor)
}

// InterceptorSkipped says that a person ended the interceptor's turn. The message is that
// of its report.
func InterceptorSkipped(interceptor, user, message string) Event {
	return warning(ReasonInterceptorSkipped, actionPassOver, "%s skipped interceptor %s, which had not completed%s", user, interceptor, saying(message))
}

// RequestHeld says that a request is being deleted and a finalizer holds it.
func RequestHeld(message string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: ReasonRequestHeld, Action: actionWithdraw, Note: message}
}

// InterceptorTimedOut says that the interceptor missed the heartbeat deadline. It has the
// last heartbeat if there was one.
func InterceptorTimedOut(interceptor string, deadline time.Duration, lastHeartbeat time.Time) Event {
	heard := "it never sent a heartbeat"
	if !lastHeartbeat.IsZero() {
		heard = "its last heartbeat was at " + lastHeartbeat.UTC().Format(time.RFC3339)
	}
	return warning(ReasonInterceptorTimedOut, actionPassOver, "Interceptor %s was silent for more than %s and is passed over: %s.", interceptor, deadline, heard)
}

// DeadlineReached says that a requester's deadline has come before all interceptors were
// done. The message says whose, and who lost what.
func DeadlineReached(message string) Event {
	return warning(ReasonDeadlineReached, actionPassOver, "%s", message)
}

// CancellationForbidden says that the last requester has left, but that the request goes on:
// an interceptor is past the point of no return. The message says which.
func CancellationForbidden(message string) Event {
	return warning(ReasonCancellationForbidden, actionWithdraw, "%s", message)
}

// ShortNotice says that a deadline leaves interceptors, whose turn it is, less than they
// need. The message says whom, and what follows.
func ShortNotice(message string) Event {
	return warning(ReasonShortNotice, actionActivate, "%s", message)
}

// NodeLost says that the node of the pod is lost. The message is the one of the condition,
// and says whom that has cost a turn.
func NodeLost(message string) Event {
	return warning(ReasonNodeLost, actionPassOver, "%s", message)
}

// NodeBack says that the node of the pod is back.
func NodeBack(message string) Event {
	return normal(ReasonNodeBack, actionActivate, "%s", message)
}

// CompletionUnchecked says that the time of an interceptor's completion was not checked,
// and why its managedFields do not confirm it.
func CompletionUnchecked(interceptor, why string) Event {
	return warning(ReasonCompletionUnchecked, actionPassOver, "Interceptor %s has completed, but no manager ran to check that: %s.", interceptor, why)
}

// OutcomeUntrue says that a request was deleted because its outcome was untrue.
func OutcomeUntrue(why string) Event {
	return warning(ReasonOutcomeUntrue, actionWithdraw, "%s", why+". Only Drawbridge may say that, and did not, so the request was deleted: whoever wants the eviction asks again.")
}

// Evicted says that the target has ended. The message is the one of the
// condition.
func Evicted(message string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: ReasonEvicted, Action: actionFinish, Note: message}
}

// Canceled says that the eviction is no longer wanted. The message is the one of the
// condition.
func Canceled(message string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: ReasonCanceled, Action: actionWithdraw, Note: message}
}

// Refused says that the request was canceled because its target cannot be
// evicted through this API. The message is the one of the condition.
func Refused(message string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: ReasonCanceled, Action: actionRejection, Note: message}
}
