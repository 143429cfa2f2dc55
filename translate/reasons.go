package translate

// Reason of a verdict: a closed set, fit for metric labels and audit logs.
type Reason string

// Reasons to allow.
const (
	ReasonNoInterceptors     Reason = "no-interceptors"
	ReasonPodNotFound        Reason = "pod-not-found"
	ReasonPreconditionFailed Reason = "precondition-failed"
	ReasonPodTerminating     Reason = "pod-terminating"
	ReasonPodTerminal        Reason = "pod-terminal"
	ReasonPodPending         Reason = "pod-pending"
	ReasonDaemonSetPod       Reason = "daemonset-pod"
	ReasonMirrorPod          Reason = "mirror-pod"
	ReasonGroupPod           Reason = "group-pod"
	ReasonImperativeStage    Reason = "imperative-stage"
	ReasonActiveInterceptor  Reason = "active-interceptor"
	ReasonPreflightAllowed   Reason = "preflight-allowed"
	ReasonRequestRefused     Reason = "request-refused"
	ReasonDryRun             Reason = "dry-run"
)

// Reasons to deny while a request stands behind the answer.
const (
	ReasonAccepted          Reason = "accepted"
	ReasonWaiting           Reason = "waiting"
	ReasonStalled           Reason = "stalled"
	ReasonRestarting        Reason = "restarting"
	ReasonRequestHeld       Reason = "request-held"
	ReasonTooManyRequesters Reason = "too-many-requesters"
)

// ReasonReplacement says that the call is about a pod that already left, and
// another one has its name now.
const ReasonReplacement Reason = "replacement"

// ReasonLeft says that the call is about a pod that already left.
const ReasonLeft Reason = "left"

// Reasons to deny before anything is started.
const (
	ReasonPreflightDenied Reason = "preflight-denied"
	ReasonTooManyNew      Reason = "too-many-new"
)

// ReasonGuardClosed says that the call would be let through, but the guard of the
// pod is closed: it is about to open, or held.
const ReasonGuardClosed Reason = "guard-closed"

// Reasons to deny because of our own trouble.
const (
	ReasonNotSynced       Reason = "not-synced"
	ReasonLookupFailed    Reason = "lookup-failed"
	ReasonPreflightFailed Reason = "preflight-failed"
	ReasonWriteFailed     Reason = "write-failed"
	ReasonWriteRefused    Reason = "write-refused"
	ReasonChanged         Reason = "changed"
	ReasonDeadline        Reason = "deadline"
	ReasonInternalError   Reason = "internal-error"
	ReasonOwnCall         Reason = "own-call"
	ReasonNotItsTurn      Reason = "not-its-turn"
)

// Reasons to deny a call that was not read, or not by whom we listen to.
const (
	ReasonTooLarge         Reason = "too-large"
	ReasonUnreadable       Reason = "unreadable"
	ReasonBusy             Reason = "busy"
	ReasonNotAuthenticated Reason = "not-authenticated"
)

// Reasons are all of them. Metrics and their reference have them in this order.
func Reasons() []Reason {
	return []Reason{
		ReasonNoInterceptors, ReasonPodNotFound, ReasonPreconditionFailed, ReasonPodTerminating, ReasonPodTerminal,
		ReasonPodPending, ReasonDaemonSetPod, ReasonMirrorPod, ReasonGroupPod, ReasonImperativeStage,
		ReasonActiveInterceptor, ReasonPreflightAllowed, ReasonRequestRefused, ReasonDryRun, ReasonAccepted, ReasonWaiting,
		ReasonStalled, ReasonRestarting, ReasonRequestHeld, ReasonTooManyRequesters, ReasonReplacement, ReasonLeft,
		ReasonPreflightDenied, ReasonTooManyNew, ReasonGuardClosed, ReasonNotSynced, ReasonLookupFailed,
		ReasonPreflightFailed, ReasonWriteFailed, ReasonWriteRefused, ReasonChanged, ReasonDeadline, ReasonInternalError, ReasonOwnCall,
		ReasonNotItsTurn, ReasonTooLarge, ReasonUnreadable, ReasonBusy, ReasonNotAuthenticated,
	}
}
